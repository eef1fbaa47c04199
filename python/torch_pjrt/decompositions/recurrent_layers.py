"""Recurrent layers as loops: ``torch.nn.LSTM``, ``GRU`` and ``RNN`` on sequences.

PyTorch runs such a layer cell by cell. Recorded so, a sequence of 100 elements is a program of 2,000 calls, which XLA
takes minutes to compile; as a loop it is compiled as fast as one cell. One direction of one layer is one call here, of
the project's own operator ``torch_pjrt::recurrent_layer``; what goes into it, x times the input weights, is one matrix
product for the whole sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

from torch_pjrt.decompositions.recurrent import gru_cell, gru_cell_backward, lstm_cell, lstm_cell_backward
from torch_pjrt.decompositions.table import DECOMPOSITIONS
from torch_pjrt.loops import looped

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
WORKSPACE = {"lstm": 4, "gru": 5, "rnn_tanh": 0, "rnn_relu": 0}  # what a cell keeps for its backward, in hidden sizes
FEW = 4  # a sequence this short is recorded cell by cell

_library = torch.library.Library("torch_pjrt", "DEF")
# gates: (length, batch, gates * hidden), x times the input weights, with all biases but a GRU's hidden one; hx and, of
# an LSTM, cx: (batch, hidden). Gives each step's hidden state, cell state (LSTM) and workspace.
_library.define(
    "recurrent_layer(Tensor gates, Tensor hx, Tensor? cx, Tensor weight, Tensor? bias, str cell, bool reverse) "
    "-> (Tensor outputs, Tensor cells, Tensor workspace)"
)
# Gives the gradients of gates, of what weight and bias added to them, of hx and cx.
_library.define(
    "recurrent_layer_backward(Tensor grad_outputs, Tensor grad_cells, Tensor outputs, Tensor cells, Tensor workspace, "
    "Tensor hx, Tensor? cx, Tensor weight, str cell, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)"
)

Scan = Callable[..., Sequence[Tensor]]


def _loop(
    step: Callable[..., Any], init: Sequence[Tensor], xs: Sequence[Tensor], additional: Sequence[Tensor], reverse: bool
) -> Sequence[Tensor]:
    return looped(lambda function, *operands: function(*operands), step, init, xs, additional, reverse)


def _unrolled(
    step: Callable[..., Any], init: Sequence[Tensor], xs: Sequence[Tensor], additional: Sequence[Tensor], reverse: bool
) -> Sequence[Tensor]:
    carry, given = list(init), []
    turns = range(xs[0].shape[0])
    for turn in reversed(turns) if reverse else turns:
        results = step(*carry, *(x[turn] for x in xs), *additional)
        carry = list(results[: len(init)])
        given.append(results[len(init) :])
    columns = zip(*(reversed(given) if reverse else given), strict=True)
    return [*carry, *(torch.stack(column) for column in columns)]


def _forward(
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


def _before(states: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """The state that each step began with."""
    return torch.cat([states[1:], first[None]] if reverse else [first[None], states[:-1]])


def _backward(
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
        gates = gh * (1 - h * h) if cell == "rnn_tanh" else torch.where(h > 0, gh, 0)
        return gates @ w, gates

    zeros = torch.zeros_like(hx)
    if cell == "lstm":
        assert cx is not None
        xs = [grad_outputs, grad_cells, cells, _before(cells, cx, reverse), workspace]
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


for _name, _meaning, _meta in (
    ("recurrent_layer", _forward, _forward_meta),
    ("recurrent_layer_backward", _backward, _backward_meta),
):

    def _with(scan: Scan, meaning: Callable[..., Any] = _meaning) -> Callable[..., Any]:
        return lambda *args: meaning(scan, *args)

    DECOMPOSITIONS[f"torch_pjrt::{_name}"] = _with(_loop)
    _library.impl(_name, _with(_unrolled), "CPU")
    _library.impl(_name, _meta, "Meta")


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    *tensors, ctx.cell, ctx.reverse = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, grad_outputs: Tensor | None, grad_cells: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    gates, hx, cx, weight, bias, outputs, cells, workspace = ctx.saved_tensors
    grad_outputs = torch.zeros_like(outputs) if grad_outputs is None else grad_outputs
    grad_cells = torch.zeros_like(cells) if grad_cells is None else grad_cells
    if torch.is_grad_enabled():  # these gradients will be differentiated
        inputs = [x for x in (gates, hx, cx, weight, bias) if x is not None and x.requires_grad]
        outputs, cells, _ = _forward(_unrolled, gates, hx, cx, weight, bias, ctx.cell, ctx.reverse)
        of, given = [outputs], [grad_outputs]
        if cx is not None:
            of, given = [outputs, cells], [grad_outputs, grad_cells]
        found = dict(zip(map(id, inputs), torch.autograd.grad(of, inputs, given, create_graph=True), strict=True))
        return *(found.get(id(x)) for x in (gates, hx, cx, weight, bias)), None, None
    grad_gates, grad_hidden, grad_hx, grad_cx = torch.ops.torch_pjrt.recurrent_layer_backward(
        grad_outputs, grad_cells, outputs, cells, workspace, hx, cx, weight, ctx.cell, ctx.reverse
    )
    grad_weight = grad_hidden.flatten(0, 1).t() @ _before(outputs, hx, ctx.reverse).flatten(0, 1)
    grad_bias = None if bias is None else grad_hidden.sum((0, 1))
    return grad_gates, grad_hx, None if cx is None else grad_cx, grad_weight, grad_bias, None, None


torch.library.register_autograd("torch_pjrt::recurrent_layer", _gradients, setup_context=_setup, lib=_library)


def _fits(x: Tensor, states: Sequence[Tensor], params: Sequence[Tensor], cell: str, biases: bool, count: int) -> bool:
    """Is it a call that a loop is for? Others, mistakes among them, go PyTorch's own way."""
    tensors = (x, *states, *params)
    if x.dim() != 3 or len(params) != count * (4 if biases else 2) or any(s.dim() != 3 for s in states):
        return False
    if not x.dtype.is_floating_point or any(t.dtype != x.dtype or t.device != x.device for t in tensors):
        return False
    if any(s.shape != states[0].shape or s.shape[0] != count for s in states) or 0 in states[0].shape or 0 in x.shape:
        return False
    if torch.is_autocast_enabled(x.device.type) or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return torch.autograd.forward_ad._current_level < 0 and params[1].shape == (
        GATES[cell] * states[0].shape[2],
        states[0].shape[2],
    )


def _layers(
    cell: str,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...] | None:
    """All layers and directions. None where this is not for loops."""
    directions = 2 if bidirectional else 1
    length = x.shape[1 if batch_first else 0] if x.dim() == 3 else 0
    if not isinstance(length, int) or length <= FEW or not _fits(x, states, params, cell, biases, layers * directions):
        return None
    hidden = states[0].shape[2]
    ends: list[list[Tensor]] = [[] for _ in states]
    y = x.transpose(0, 1) if batch_first else x
    for layer in range(layers):
        if layer and dropout and train:
            y = torch.dropout(y, dropout, True)
        given = []
        for direction in range(directions):
            i = layer * directions + direction
            w_ih, w_hh, *b = params[i * (4 if biases else 2) : (i + 1) * (4 if biases else 2)]
            if w_ih.shape != (GATES[cell] * hidden, y.shape[2]) or y.shape[1] != states[0].shape[1]:
                return None
            inner = b[1] if b and cell == "gru" else None
            gates = torch.nn.functional.linear(y, w_ih, None if not b else b[0] if inner is not None else b[0] + b[1])
            cx = states[1][i] if cell == "lstm" else None
            outputs, cells, _ = torch.ops.torch_pjrt.recurrent_layer(
                gates, states[0][i], cx, w_hh, inner, cell, direction == 1
            )
            for end, of in zip(ends, (outputs, cells), strict=False):
                end.append(of[0 if direction else -1])
            given.append(outputs)
        y = given[0] if directions == 1 else torch.cat(given, 2)
    return y.transpose(0, 1) if batch_first else y, *(torch.stack(end) for end in ends)


def _kernel(cell: str, op: Any) -> Callable[..., Any]:
    """What the operator does: a loop, or what PyTorch does for any backend."""

    def run(x: Tensor, hx: Any, params: Sequence[Tensor], *rest: Any) -> Any:
        results = _layers(cell, x, hx if cell == "lstm" else [hx], params, *rest)
        if results is None:
            return op._op_dk(DispatchKey.CompositeImplicitAutograd, x, hx, params, *rest)
        return results

    return run


KERNELS = {
    op: _kernel(cell, op)
    for cell, op in (
        ("lstm", torch.ops.aten.lstm.input),
        ("gru", torch.ops.aten.gru.input),
        ("rnn_tanh", torch.ops.aten.rnn_tanh.input),
        ("rnn_relu", torch.ops.aten.rnn_relu.input),
    )
}
_aten = torch.library.Library("aten", "IMPL")
for _op, _run in KERNELS.items():
    for _key in ("AutogradPrivateUse1", "PrivateUse1"):
        _aten.impl(_op._name.removeprefix("aten::"), _run, _key)


@contextmanager
def as_loops() -> Iterator[None]:
    """Recurrent layers on the CPU, too, are captured as loops, and none as a call of oneDNN."""
    import torch._decomp  # has PyTorch's own entries

    onednn = torch._C._get_mkldnn_enabled()
    keys = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
    before = {op: {key: op.py_kernels[key] for key in keys} for op in KERNELS}

    def put(kernels: Any) -> None:
        for op in KERNELS:
            op.py_kernels.update(kernels(op))
            op._dispatch_cache.clear()

    put(lambda op: dict.fromkeys(keys, KERNELS[op]))
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(onednn)
        put(lambda op: before[op])
