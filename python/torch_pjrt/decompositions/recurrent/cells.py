"""Fused recurrent cells, which PyTorch calls on other devices: the formulas of ``torch.nn.LSTMCell`` and ``GRUCell``.

``workspace``, which a cell stores for its backward, has the layout of the CUDA kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition


def _with_bias(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


@decomposition("_thnn_fused_lstm_cell", meta=True)
def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gates: (batch, 4 * hidden) in the order input, forget, cell, output. Returns hy, cy and the activated gates."""
    i, f, g, o = (_with_bias(input_gates, input_bias) + _with_bias(hidden_gates, hidden_bias)).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


@decomposition("_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Returns the gradients of the gates, of cx and of the biases."""
    i, f, g, o = workspace.chunk(4, 1)
    activated = cy.tanh()
    grad_o = torch.zeros_like(cy) if grad_hy is None else grad_hy * activated
    grad_c = torch.zeros_like(cy) if grad_hy is None else grad_hy * o * (1 - activated * activated)
    if grad_cy is not None:
        grad_c = grad_c + grad_cy
    grads = [grad_c * g * i * (1 - i), grad_c * cx * f * (1 - f), grad_c * i * (1 - g * g), grad_o * o * (1 - o)]
    gates = torch.cat(grads, 1)
    return gates, grad_c * f, gates.sum(0) if has_bias else None


@decomposition("_thnn_fused_gru_cell", meta=True)
def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gates: (batch, 3 * hidden) in the order reset, input, new. Returns hy and the workspace of the backward."""
    ir, ii, new = _with_bias(input_gates, input_bias).chunk(3, 1)
    hr, hi, hn = _with_bias(hidden_gates, hidden_bias).chunk(3, 1)
    r, i = (ir + hr).sigmoid(), (ii + hi).sigmoid()
    n = (new + r * hn).tanh()
    return n + i * (hx - n), torch.cat([r, i, n, hx, hn], 1)


@decomposition("_thnn_fused_gru_cell_backward", meta=True)
def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Returns the gradients of the input gates, the hidden gates, hx and the two biases."""
    r, i, n, hx, hn = workspace.chunk(5, 1)
    grad_n = grad_hy * (1 - i) * (1 - n * n)
    grad_i = grad_hy * (hx - n) * (1 - i) * i
    grad_r = grad_n * hn * (1 - r) * r
    inputs, hidden = torch.cat([grad_r, grad_i, grad_n], 1), torch.cat([grad_r, grad_i, grad_n * r], 1)
    biases = (inputs.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return inputs, hidden, grad_hy * i, *biases
