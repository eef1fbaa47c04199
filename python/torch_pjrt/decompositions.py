"""Decompositions that PyTorch lacks: of fused recurrent cells and attention layers, which it picks for other devices.

The formulas are those of ``torch.nn.LSTMCell``, ``GRUCell``, ``MultiheadAttention`` and ``TransformerEncoderLayer``.
What a recurrent cell keeps for the backward (``workspace``) has the layout that the CUDA kernels give it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

DECOMPOSITIONS: dict[str, Callable[..., Any]] = {}
_meta = torch.library.Library("aten", "IMPL")


def _decomposition(name: str, meta: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``meta``: PyTorch has no Meta kernel either, or one that fails without biases; this serves as one."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        DECOMPOSITIONS[f"aten::{name}"] = function
        if meta:
            _meta.impl(name, function, "Meta", allow_override=True)
        return function

    return add


def _with_bias(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


@_decomposition("_thnn_fused_lstm_cell", meta=True)
def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gates: (batch, 4 * hidden) in the order input, forget, cell, output. Gives hy, cy and the activated gates."""
    i, f, g, o = (_with_bias(input_gates, input_bias) + _with_bias(hidden_gates, hidden_bias)).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


@_decomposition("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gives the gradients of the gates, of cx and of the biases."""
    i, f, g, o = workspace.chunk(4, 1)
    activated = cy.tanh()
    grad_o = torch.zeros_like(cy) if grad_hy is None else grad_hy * activated
    grad_c = torch.zeros_like(cy) if grad_hy is None else grad_hy * o * (1 - activated * activated)
    if grad_cy is not None:
        grad_c = grad_c + grad_cy
    grads = [grad_c * g * i * (1 - i), grad_c * cx * f * (1 - f), grad_c * i * (1 - g * g), grad_o * o * (1 - o)]
    gates = torch.cat(grads, 1)
    return gates, grad_c * f, gates.sum(0) if has_bias else None


@_decomposition("_thnn_fused_gru_cell", meta=True)
def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gates: (batch, 3 * hidden) in the order reset, input, new. Gives hy and what the backward needs."""
    ir, ii, new = _with_bias(input_gates, input_bias).chunk(3, 1)
    hr, hi, hn = _with_bias(hidden_gates, hidden_bias).chunk(3, 1)
    r, i = (ir + hr).sigmoid(), (ii + hi).sigmoid()
    n = (new + r * hn).tanh()
    return n + i * (hx - n), torch.cat([r, i, n, hx, hn], 1)


@_decomposition("_thnn_fused_gru_cell_backward", meta=True)
def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gives the gradients of the input gates, the hidden gates, hx and the two biases."""
    r, i, n, hx, hn = workspace.chunk(5, 1)
    grad_n = grad_hy * (1 - i) * (1 - n * n)
    grad_i = grad_hy * (hx - n) * (1 - i) * i
    grad_r = grad_n * hn * (1 - r) * r
    inputs, hidden = torch.cat([grad_r, grad_i, grad_n], 1), torch.cat([grad_r, grad_i, grad_n * r], 1)
    biases = (inputs.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return inputs, hidden, grad_hy * i, *biases


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


@_decomposition("_native_multi_head_attention", meta=True)
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
) -> tuple[Tensor, Tensor]:
    """Tensors are (batch, tokens, embed_dim). Gives those, and the probabilities, averaged over heads if so wanted."""

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
    return torch.nn.functional.linear(joined, proj_weight, proj_bias), probabilities


@_decomposition("_transformer_encoder_layer_fwd", meta=True)
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
    """The formulas of ``torch.nn.TransformerEncoderLayer``, without dropout."""
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
