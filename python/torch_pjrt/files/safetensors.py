"""Reads and writes tensors as safetensors files: row-major, by name."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path

import torch

from torch_pjrt.files.archive import Bytes

CODES = {
    torch.bool: "BOOL", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64",
    torch.uint8: "U8", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ", torch.float8_e8m0fnu: "F8_E8M0",
}  # fmt: skip
DTYPES = {code: dtype for dtype, code in CODES.items()}
LINE = 64


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_dtype(dtype: torch.dtype, name: str) -> None:
    if dtype not in CODES:
        raise TypeError(f"{name} is {dtype_name(dtype)}, which a program's file has no form for")


def content(tensor: torch.Tensor) -> memoryview:
    """Returns the bytes of the elements, row-major, on the CPU."""
    dense = tensor.detach().cpu().contiguous()
    if dense.numel() == 0:
        return memoryview(b"")
    return memoryview(dense.reshape(-1).view(torch.uint8).numpy())


def parts_of(tensors: Mapping[str, torch.Tensor]) -> list[Bytes]:
    """Returns the pieces of a file. Tensors of whole cache lines come first, so that they are aligned without gaps,
    which the format doesn't allow."""

    def order(name: str) -> tuple[int, str]:
        tensor = tensors[name]
        return (0 if tensor.nbytes % LINE == 0 else LINE - tensor.element_size()), name

    header: dict[str, object] = {}
    pieces: list[Bytes] = []
    at = 0
    for name in sorted(tensors, key=order):
        tensor = tensors[name]
        check_dtype(tensor.dtype, name)
        header[name] = {
            "dtype": CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.nbytes],
        }
        pieces.append(content(tensor))
        at += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % LINE)
    return [struct.pack("<Q", len(text)) + text, *pieces]


def read(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Returns the tensors of a file, on the CPU.

    Raises:
        ValueError: the file is not a safetensors file.
    """
    whole = Path(path).read_bytes()
    try:
        (size,) = struct.unpack_from("<Q", whole)
        header = json.loads(whole[8 : 8 + size])
        data = memoryview(bytearray(whole))[8 + size :]
        tensors = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            first, last = entry["data_offsets"]
            dtype = DTYPES[entry["dtype"]]
            piece = data[first:last]
            if last == first:
                tensors[name] = torch.empty(entry["shape"], dtype=dtype)
            else:
                flat = torch.frombuffer(piece, dtype=torch.uint8).clone()
                tensors[name] = flat.view(dtype).reshape(entry["shape"])
        return tensors
    except (struct.error, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"'{path}' is no safetensors file, or is damaged: {error}") from error
