"""The text of values' types in a trace."""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt.program.subclasses import is_subclass, name_of, parts_of, real_of

SHORT = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8",
    torch.complex64: "c64", torch.complex128: "c128", torch.float8_e4m3fn: "f8_e4m3fn", torch.float8_e5m2: "f8_e5m2",
    torch.float8_e4m3fnuz: "f8_e4m3fnuz", torch.float8_e5m2fnuz: "f8_e5m2fnuz", torch.float8_e8m0fnu: "f8_e8m0fnu",
}  # fmt: skip


def number_of(x: Any) -> Any:
    """Returns a symbol's value in the traced call; converting the symbol would add a guard on the value."""
    if not isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return x
    hint = x.node.hint
    return hint if isinstance(hint, (int, float)) else x


def plain_type(tensor: torch.Tensor) -> str:
    dtype = SHORT.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
    return f"{dtype}[{', '.join(str(size) for size in tensor.shape)}]"


def type_of(value: Any) -> str:
    """Returns its text: ``"Float8TrainingTensor[pjrt:0 f32[16, 32]; _data f8_e4m3fn[16, 32], _scale f32[]]"``."""

    def write(value: Any, where: str) -> str:
        if not isinstance(value, torch.Tensor):
            return name_of(real_of(value))
        if not is_subclass(value):
            return where + plain_type(value)
        inside = ", ".join(f"{name} {write(part, '')}" for name, part in parts_of(value)[0].items())
        return f"{name_of(value)}[{where}{plain_type(value)}{'; ' if inside else ''}{inside}]"

    if isinstance(value, torch.Tensor):
        return write(value, f"{value.device} ")
    return "int" if isinstance(value, (torch.SymInt, int)) else name_of(real_of(value))
