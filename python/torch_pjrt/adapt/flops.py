"""What PyTorch's FlopCounterMode has to know of operators that only this device reaches."""

from __future__ import annotations

import math
from typing import Any

import torch

Shape = tuple[int, ...]


def linear_backward(self: Shape | None, grad_output: Shape, weight: Shape, mask: list[bool], **_: Any) -> int:
    """Of the two products of ``aten::linear_backward``, those that are asked for."""
    return 2 * math.prod(grad_output) * weight[1] * (mask[0] + mask[1])


def install() -> None:
    from torch.utils.flop_counter import register_flop_formula, sdpa_backward_flop_count, sdpa_flop_count

    def attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
        return sdpa_flop_count(query, key, value)

    def attention_backward(grad: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
        return sdpa_backward_flop_count(grad, query, key, value)

    aten = torch.ops.aten
    register_flop_formula(aten.linear_backward)(linear_backward)
    register_flop_formula(aten._scaled_dot_product_fused_attention_overrideable)(attention)
    register_flop_formula(aten._scaled_dot_product_fused_attention_overrideable_backward)(attention_backward)
