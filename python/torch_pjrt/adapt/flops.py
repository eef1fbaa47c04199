"""Formulas for PyTorch's FlopCounterMode, for operators that only this device dispatches."""

from __future__ import annotations

import math
from typing import Any

import torch

from torch_pjrt.adapt.after_import import after_import

Shape = tuple[int, ...]


def linear_backward(self: Shape | None, grad_output: Shape, weight: Shape, mask: list[bool], **_: Any) -> int:
    """Counts the products of ``aten::linear_backward`` that ``mask`` asks for."""
    return 2 * math.prod(grad_output) * weight[1] * (mask[0] + mask[1])


def _add_formulas(counter: Any) -> None:
    def attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> Any:
        return counter.sdpa_flop_count(query, key, value)

    def attention_backward(grad: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> Any:
        return counter.sdpa_backward_flop_count(grad, query, key, value)

    aten, formula = torch.ops.aten, counter.register_flop_formula
    formula(aten.linear_backward)(linear_backward)
    formula(aten._scaled_dot_product_fused_attention_overrideable)(attention)
    formula(aten._scaled_dot_product_fused_attention_overrideable_backward)(attention_backward)


def install() -> None:
    after_import("torch.utils.flop_counter", _add_formulas)
