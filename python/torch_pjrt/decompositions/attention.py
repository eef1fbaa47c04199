"""Fused attention layers, by the formulas of ``torch.nn.MultiheadAttention`` and ``TransformerEncoderLayer``.

It also has the Meta kernels that torch 2.11 lacks to record scaled_dot_product_attention as one op.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition, meta


def _scores_softmax(scores: Tensor, mask: Tensor | None, mask_type: int | None) -> Tensor:
    """Softmax over the last dimension of (batch, heads, queries, keys), where ``mask`` is not true.

    ``mask_type``: 0, (queries, keys); 1, (batch, keys); else the scores' own shape.
    """
    if mask is not None:
        mask = mask.to(torch.bool)
        if mask_type == 0:
            mask = mask[None, None]
        elif mask_type == 1:
            mask = mask[:, None, None]
        scores = scores.masked_fill(mask, float("-inf"))
    return scores.softmax(-1)


@decomposition("_native_multi_head_attention", meta=True)
def native_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Tensors are (batch, tokens, embed_dim). Returns such a tensor and, if wanted, the probabilities, averaged over
    heads if that is wanted."""

    def heads(x: Tensor, part: int) -> Tensor:
        rows = slice(part * embed_dim, (part + 1) * embed_dim)
        projected = torch.nn.functional.linear(x, qkv_weight[rows], qkv_bias[rows])
        return projected.unflatten(-1, (num_head, -1)).transpose(1, 2)

    q, k, v = heads(query, 0), heads(key, 1), heads(value, 2)
    scores = (q * (embed_dim // num_head) ** -0.5) @ k.transpose(-2, -1)
    probabilities = _scores_softmax(scores, mask, mask_type)
    joined = (probabilities @ v).transpose(1, 2).flatten(2)
    if need_weights and average_attn_weights:
        probabilities = probabilities.mean(1)
    return torch.nn.functional.linear(joined, proj_weight, proj_bias), probabilities if need_weights else None


@decomposition("_transformer_encoder_layer_fwd", meta=True)
def transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Computes ``torch.nn.TransformerEncoderLayer`` by its formulas, without dropout."""
    functional = torch.nn.functional
    activation = functional.gelu if use_gelu else functional.relu

    def norm1(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm2(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attention(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return native_multi_head_attention(x, x, x, embed_dim, num_heads, *weights, mask, False, True, mask_type)[0]

    def feed_forward(x: Tensor) -> Tensor:
        hidden = activation(functional.linear(x, ffn_weight_1, ffn_bias_1))
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    if norm_first:
        src = src + attention(norm1(src))
        return src + feed_forward(norm2(src))
    src = norm1(src + attention(src))
    return norm2(src + feed_forward(src))


def _fused_attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Any, ...]:
    """Returns (output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, seed, offset, debug mask) on Meta."""
    output = torch.empty_like(query)
    if value.size(-1) != query.size(-1):  # the output has the value's width and the query's order of dimensions
        order = sorted(range(query.dim()), key=query.stride, reverse=True)
        shape = (*query.shape[:-1], value.size(-1))
        output = torch.empty_permuted(shape, order, dtype=query.dtype, device=query.device)
    rows = query.shape[:-1] if query.dim() == 4 else (1, *query.shape[:-1])
    seed, offset = (torch.empty((), dtype=torch.long, device="meta") for _ in range(2))
    logsumexp = query.new_empty(rows, dtype=torch.float)
    return output, logsumexp, None, None, query.size(-2), key.size(-2), seed, offset, None


def _fused_attention_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, *_: Any, **__: Any
) -> tuple[Tensor | None, ...]:
    return tuple(None if x is None else torch.empty_like(x) for x in (query, key, value, attn_bias))


_FUSED = "_scaled_dot_product_fused_attention_overrideable"
# torch 2.11 lacks a Meta kernel for the backward, and has one for the forward that takes four dimensions only.
if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{_FUSED}_backward", "Meta"):
    meta(_FUSED)(_fused_attention)
    meta(f"{_FUSED}_backward")(_fused_attention_backward)
