"""Attention of nested tensors.

PyTorch has kernels for it on CUDA. On other devices it uses nested tensors of the strided layout, which exist only for
CPU and CUDA. Here the sequences are padded, and a mask excludes the padding of the keys.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nn import functional as F

from torch_pjrt.adapt.after_import import after_import


def _attention(query: Any, key: Any, value: Any, is_causal: bool, **options: Any) -> Any:
    """Computes attention of nested tensors (batch, heads, ragged, size)."""
    from torch.nested._internal.nested_tensor import nested_from_padded

    def padded(nested: Any) -> torch.Tensor:
        return nested.transpose(1, 2).to_padded_tensor(0.0).transpose(1, 2)

    queries, keys, values = padded(query), padded(key), padded(value)
    lengths = key.offsets().diff() if key.lengths() is None else key.lengths()
    mask = torch.arange(keys.shape[2], device=lengths.device) < lengths[:, None]
    mask = mask[:, None, None].expand(-1, 1, queries.shape[2], -1)
    if is_causal:
        mask = mask.tril()
    attended = F.scaled_dot_product_attention(queries, keys, values, mask, **options)
    attended = nested_from_padded(
        attended.transpose(1, 2), query.offsets(), ragged_idx=1, sum_S=query.transpose(1, 2).values().shape[0],
        min_seqlen=query._maybe_min_seqlen, max_seqlen=query._maybe_max_seqlen,
    )  # fmt: skip
    return attended.transpose(1, 2)


def _attend_padded(ops: Any) -> None:
    inner = ops.jagged_scaled_dot_product_attention

    @functools.wraps(inner)
    def jagged(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        options = {"dropout_p": dropout_p, "scale": scale, "enable_gqa": enable_gqa}
        ragged = all(x.is_nested and x.dim() == 4 and x._ragged_idx == 2 for x in (query, key, value))
        if query.device.type != "pjrt" or not ragged or attn_mask is not None:
            return inner(query, key, value, attn_mask, is_causal=is_causal, **options)
        return _attention(query, key, value, is_causal, **options)

    ops.jagged_scaled_dot_product_attention = jagged


def install() -> None:
    after_import("torch.nested._internal.ops", _attend_padded)
