"""DTensor's sharding rule for the device's fused attention: by batch and by head, as for CUDA's.

DTensor has no rule for this operator. It can't run the operator's decomposition if the mask is causal, because the mask
is a plain tensor, which DTensor refuses together with its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from torch_pjrt.adapt.after_import import after_import

Placements = tuple[list[Any], list[Any]]  # of results and of arguments
BATCH, HEADS = 0, 1


def _ways(query: Any, bias: Any) -> list[tuple[Any, Any]]:
    """Returns pairs of placements: of queries, keys, values and most results; of the mask, which may be broadcast."""
    from torch.distributed.tensor import Replicate, Shard

    ways: list[tuple[Any, Any]] = [(Replicate(), Replicate())]
    for dim in (BATCH, HEADS)[: len(query.shape) - 2]:  # rank 3 has heads only
        split = False
        if bias is not None:
            of_mask = dim - len(query.shape) + len(bias.shape)
            split = of_mask >= 0 and bias.shape[of_mask] > 1
        ways.append((Shard(dim), Shard(of_mask) if split else Replicate()))
    return ways


def _attention(query: Any, key: Any, value: Any, attn_bias: Any = None, *_: Any, **__: Any) -> Sequence[Placements]:
    from torch.distributed.tensor import Replicate

    sharded: list[Placements] = []
    for way, mask in _ways(query, attn_bias):
        results = [way, way, None, None, None, None, Replicate(), Replicate(), None]
        sharded.append((results, [way, way, way, *([] if attn_bias is None else [mask])]))
    return sharded


def _attention_backward(
    grad_out: Any, query: Any, key: Any, value: Any, attn_bias: Any, grad_input_mask: Any, *rest: Any, **_: Any
) -> Sequence[Placements]:
    from torch.distributed.tensor import Partial, Replicate

    everywhere = Replicate()
    sharded: list[Placements] = []
    for way, mask in _ways(query, attn_bias):
        grad_mask = None
        if grad_input_mask[3]:
            grad_mask = Partial() if mask == everywhere and way != everywhere else mask
        seeds = [everywhere] * sum(hasattr(argument, "shape") for argument in rest[2:])
        operands = [way, way, way, way, *([] if attn_bias is None else [mask]), way, way, *seeds]
        sharded.append(([way, way, way, grad_mask], operands))
    return sharded


def _register(_: ModuleType) -> None:
    from torch.distributed.tensor.experimental import register_sharding

    aten = torch.ops.aten
    register_sharding(aten._scaled_dot_product_fused_attention_overrideable.default)(_attention)
    register_sharding(aten._scaled_dot_product_fused_attention_overrideable_backward.default)(_attention_backward)


def install() -> None:
    if torch.distributed.is_available():
        after_import("torch.distributed.tensor", _register)
