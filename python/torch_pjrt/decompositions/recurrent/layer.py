"""One direction of one layer of ``torch.nn.LSTM``, ``GRU`` or ``RNN`` on sequences, as a loop.

It is an operator of this project, ``torch_pjrt::recurrent_layer``. Its first operand, x times the input weights, is one
matrix product for the whole sequence. Programs on the CPU call its kernel (src/kernels/cpu/recurrent.cpp); elsewhere it
is a loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_pjrt.decompositions.recurrent.cells import gru_cell, gru_cell_backward, lstm_cell, lstm_cell_backward
from torch_pjrt.decompositions.table import DECOMPOSITIONS
from torch_pjrt.program.loops import apply, looped, unrolled

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
WORKSPACE = {"lstm": 4, "gru": 5, "rnn_tanh": 0, "rnn_relu": 0}  # size of a cell's workspace, in hidden sizes

# gates: (length, batch, gates * hidden), x times the input weights, with all biases but a GRU's hidden one; hx and, for
# an LSTM, cx: (batch, hidden). Returns each step's hidden state, cell state (LSTM) and workspace. The backward returns
# the gradients of gates, of the terms that weight and bias added to them, and of hx and cx.
_library = torch.library.Library("torch_pjrt", "FRAGMENT")

Scan = Callable[..., Sequence[Tensor]]
loop: Scan = functools.partial(looped, apply)
unrolled_loop: Scan = functools.partial(unrolled, apply)


def layer_forward(
    scan: Scan, gates: Tensor, hx: Tensor, cx: Tensor | None, weight: Tensor, bias: Tensor | None, cell: str, rev: bool
) -> tuple[Tensor, Tensor, Tensor]:
    def lstm(h: Tensor, c: Tensor, x: Tensor, w: Tensor) -> Sequence[Tensor]:
        h, c, workspace = lstm_cell(x, h @ w.t(), c)
        return h, c, h, c, workspace

    def gru(h: Tensor, x: Tensor, w: Tensor, *bias: Tensor) -> Sequence[Tensor]:
        h, workspace = gru_cell(x, h @ w.t(), h, None, *bias)
        return h, h, workspace

    def rnn(h: Tensor, x: Tensor, w: Tensor) -> Sequence[Tensor]:
        h = x + h @ w.t()
        h = h.tanh() if cell == "rnn_tanh" else h.relu()
        return h, h

    nothing = gates.new_empty(0)
    if cell == "lstm":
        assert cx is not None
        _, _, outputs, cells, workspace = scan(lstm, [hx, cx], [gates], [weight], rev)
        return outputs, cells, workspace
    if cell == "gru":
        _, outputs, workspace = scan(gru, [hx], [gates], [weight] if bias is None else [weight, bias], rev)
        return outputs, nothing, workspace
    return scan(rnn, [hx], [gates], [weight], rev)[1], nothing, gates.new_empty(0)


def before(states: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """Returns the state at the beginning of each step."""
    return torch.cat([states[1:], first[None]] if reverse else [first[None], states[:-1]])


def layer_backward(
    scan: Scan,
    grad_outputs: Tensor,
    grad_cells: Tensor,
    outputs: Tensor,
    cells: Tensor,
    workspace: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    weight: Tensor,
    cell: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    def lstm(gh: Tensor, gc: Tensor, *now: Tensor) -> Sequence[Tensor | None]:
        grad_output, grad_cell, c, c_before, kept, w = now
        gates, gc_before, _ = lstm_cell_backward(gh + grad_output, gc + grad_cell, c_before, c, kept, False)
        assert gates is not None
        return gates @ w, gc_before, gates

    def gru(gh: Tensor, grad_output: Tensor, kept: Tensor, w: Tensor) -> Sequence[Tensor]:
        gates, hidden, gh_before, _, _ = gru_cell_backward(gh + grad_output, kept, False)
        return gh_before + hidden @ w, gates, hidden

    def rnn(gh: Tensor, grad_output: Tensor, h: Tensor, w: Tensor) -> Sequence[Tensor]:
        gh = gh + grad_output
        gates = gh * (1 - h * h) if cell == "rnn_tanh" else torch.where(h <= 0, 0, gh)
        return gates @ w, gates

    zeros = torch.zeros_like(hx)
    if cell == "lstm":
        assert cx is not None
        xs = [grad_outputs, grad_cells, cells, before(cells, cx, reverse), workspace]
        gh, gc, gates = scan(lstm, [zeros, zeros], xs, [weight], not reverse)
        return gates, gates, gh, gc
    if cell == "gru":
        gh, gates, hidden = scan(gru, [zeros], [grad_outputs, workspace], [weight], not reverse)
        return gates, hidden, gh, hx.new_empty(0)
    gh, gates = scan(rnn, [zeros], [grad_outputs, outputs], [weight], not reverse)
    return gates, gates, gh, hx.new_empty(0)


def _forward_meta(
    gates: Tensor, hx: Tensor, cx: Tensor | None, weight: Tensor, bias: Tensor | None, cell: str, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    length, (batch, hidden) = gates.shape[0], hx.shape
    kept = WORKSPACE[cell] * hidden
    cells = gates.new_empty((length, batch, hidden) if cell == "lstm" else (0,))
    return gates.new_empty(length, batch, hidden), cells, gates.new_empty((length, batch, kept) if kept else (0,))


def _backward_meta(
    grad_outputs: Tensor,
    grad_cells: Tensor,
    outputs: Tensor,
    cells: Tensor,
    workspace: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    weight: Tensor,
    cell: str,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gates = (*outputs.shape[:2], weight.shape[0])
    gc = hx.new_empty(hx.shape if cell == "lstm" else (0,))
    return outputs.new_empty(gates), outputs.new_empty(gates), torch.empty_like(hx), gc


for _name, _decomposition, _meta in (
    ("recurrent_layer", layer_forward, _forward_meta),
    ("recurrent_layer_backward", layer_backward, _backward_meta),
):
    DECOMPOSITIONS[f"torch_pjrt::{_name}"] = functools.partial(_decomposition, loop)
    _library.impl(_name, _meta, "Meta")


def differentiable(
    function: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor | None], grads: Sequence[Tensor]
) -> list[Tensor | None]:
    """Returns the gradients of the tensors that require any, themselves with gradients, from those of the function's
    first results."""
    # Views: a tensor that is computed from another, or is given twice, has a gradient of its own.
    own = [None if t is None else t.view_as(t) for t in tensors]
    wanted = [t for t in own if t is not None and t.requires_grad]
    found = iter(torch.autograd.grad(function(*own)[: len(grads)], wanted, grads, create_graph=True))
    return [next(found) if t is not None and t.requires_grad else None for t in own]


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.cell, ctx.reverse = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, grad_outputs: Tensor | None, grad_cells: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    gates, hx, cx, weight, bias, outputs, cells, workspace = ctx.saved_tensors
    grad_outputs = torch.zeros_like(outputs) if grad_outputs is None else grad_outputs
    grad_cells = torch.zeros_like(cells) if grad_cells is None else grad_cells
    if torch.is_grad_enabled():  # for a double backward
        count = 1 if cx is None else 2
        again = functools.partial(layer_forward, unrolled_loop, cell=ctx.cell, rev=ctx.reverse)
        grads = (grad_outputs, grad_cells)[:count]
        return *differentiable(again, (gates, hx, cx, weight, bias), grads), None, None
    grad_gates, grad_hidden, grad_hx, grad_cx = torch.ops.torch_pjrt.recurrent_layer_backward(
        grad_outputs, grad_cells, outputs, cells, workspace, hx, cx, weight, ctx.cell, ctx.reverse
    )
    states = before(outputs, hx, ctx.reverse)
    # flatten has no batching rule, which is_grads_batched needs.
    grad_weight = grad_hidden.reshape(-1, grad_hidden.shape[2]).t() @ states.reshape(-1, states.shape[2])
    grad_bias = None if bias is None else grad_hidden.sum((0, 1))
    return grad_gates, grad_hx, None if cx is None else grad_cx, grad_weight, grad_bias, None, None


torch.library.register_autograd("torch_pjrt::recurrent_layer", _gradients, setup_context=_setup, lib=_library)
