"""Convolutions on the CPU by ATen's kernels, which are oneDNN's. Registered by the public table, from the library of
``torch_pjrt._C``.

On request: what they gain depends on the network and the machine (``./dev bench convolution``), and calls under way in
several threads wait for each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torch_pjrt import _C
from torch_pjrt.kernels.call import Call, Form
from torch_pjrt.kernels.register import RegisteredKernel, register_kernel

# Multiplications below which a call costs more than it saves.
LEAST = 1 << 21


def is_worth_it(call: Call) -> bool | str:
    """Of float32, and enough work."""
    if any(form.dtype != torch.float32 for form in (*call.operands, *call.results)):
        return "it is for float32"
    shapes = [form.shape for form in call.operands]
    if any(0 in shape for shape in shapes) or len(shapes[0]) not in (4, 5):
        return "it is for two and three dimensions"
    backward = call.name == "aten.convolution_backward.default"
    over, weight = (shapes[0], shapes[2]) if backward else (call.results[0].shape, shapes[1])
    if call.attributes["transposed"]:
        over = shapes[1] if backward else shapes[0]
    if math.prod(over) * math.prod(weight[1:]) < LEAST:
        return "it is small"
    return True


def layouts(forms: Sequence[Form]) -> list[Sequence[int] | None]:
    """Images with the channels last."""
    return [(1, 3, 2, 0) if len(form.shape) == 4 else None for form in forms]


def operand_layouts(call: Call) -> list[Sequence[int] | None]:
    """A weight that is kept as oneDNN has it (src/kernels/packed_weights.h) is row-major."""
    orders = layouts(call.operands)
    if call.name == "aten.convolution.default" and not call.attributes["transposed"]:
        orders[1] = None
    return orders


def register(*, channels_last: bool = True) -> list[RegisteredKernel]:
    """Has them do ``aten.convolution.default`` and its backward on the CPU, from now on.

    Args:
        channels_last: have images with the channels last within programs, which is faster where a network only infers.
            In training it is slower: what is saved for the backward is row-major, and so it is copied to and fro.

    Raises:
        ValueError: they are registered already.
    """
    return [
        register_kernel(
            f"aten.{name}.default",
            library=str(_C.__file__),
            symbol=f"torch_pjrt_{name}" if channels_last else f"torch_pjrt_{name}_of_rows",
            when=is_worth_it,
            operand_layouts=operand_layouts if channels_last else None,
            result_layouts=(lambda call: layouts(call.results)) if channels_last else None,
        )
        for name in ("convolution", "convolution_backward")
    ]
