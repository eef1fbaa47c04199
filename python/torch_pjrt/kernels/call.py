"""The description of a call that is offered to a kernel: a composite, its operands, results and attributes."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

ELEMENTS = {
    torch.bool: "i1",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "ui8",
    torch.uint16: "ui16",
    torch.uint32: "ui32",
    torch.uint64: "ui64",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e4m3fnuz: "f8E4M3FNUZ",
    torch.float8_e5m2: "f8E5M2",
    torch.float8_e5m2fnuz: "f8E5M2FNUZ",
    torch.float8_e8m0fnu: "f8E8M0FNU",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
}


@dataclass(frozen=True)
class Form:
    """A tensor's dtype, shape and layout."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    layout: tuple[int, ...] = field(default=(), compare=False)
    """The dimensions from the fastest-varying to the slowest, by the tensor's strides in PyTorch: ``(1, 0)`` is
    row-major, ``(1, 3, 2, 0)`` channels last. XLA chooses the layouts of the program's own values, unless a handler has
    ``operand_layouts`` and ``result_layouts``."""

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides in elements of dense memory with this layout."""
        strides, step = [0] * len(self.shape), 1
        for dim in self.layout:
            strides[dim] = step
            step *= max(self.shape[dim], 1)
        return tuple(strides)

    @property
    def mlir(self) -> str:
        """The MLIR type: ``"tensor<2x3xf32>"``."""
        return f"tensor<{'x'.join([*map(str, self.shape), ELEMENTS[self.dtype]])}>"

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


@dataclass(frozen=True)
class Call:
    """A composite that is offered to a kernel, the argument of ``when=``."""

    name: str
    platform: str
    operands: tuple[Form, ...]
    results: tuple[Form, ...]
    attributes: Mapping[str, Any]
    """Numbers, strings, bools, and lists of them; ``"operands"`` names the operands if the op's schema doesn't
    determine them (docs/composites.md)."""
    texts: Mapping[str, str]
    """The attributes in MLIR's syntax."""
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        """The call's name in errors: ``"composite 'my.op' (first recorded at train.py:12)"``; equal calls share it."""
        return f"composite '{self.name}'" + (f" (first recorded at {self.file}:{self.line})" if self.file else "")


def forms(types: Sequence[tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]]) -> tuple[Form, ...]:
    return tuple(Form(*each) for each in types)


def _number(text: str) -> bool | int | float:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("0x"):  # a float that decimal digits can't represent: infinity or NaN
        (value,) = struct.unpack("<d", int(text, 16).to_bytes(8, "little"))
        return float(value)
    return float(text) if re.search(r"[.eE]", text) else int(text)


def _string(text: str) -> str:
    plain = re.sub(
        rb"\\([0-9A-Fa-f]{2})|\\(.)", lambda m: bytes.fromhex(m[1].decode()) if m[1] else m[2], text.encode()
    )
    return plain.decode()


def value_of(text: str) -> Any:
    """Returns the value of an attribute in MLIR's syntax, as ``_C.attribute`` writes it."""
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
    if text.startswith('"'):
        return _string(strings[0])
    if text.startswith("["):
        return [_string(one) for one in strings]
    if array := re.fullmatch(r"array<\w+(?:: (.*))?>", text):
        return [_number(one) for one in array[1].split(", ")] if array[1] else []
    return _number(text.partition(" : ")[0])
