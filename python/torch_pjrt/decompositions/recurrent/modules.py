"""``torch.nn.LSTM``, ``GRU`` and ``RNN`` on sequences: a loop for each layer and direction.

PyTorch runs such a module cell by cell. Recorded in that way, a sequence of 100 elements is a program of 2,000 calls,
which XLA compiles for minutes; a loop compiles as fast as one cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

from torch_pjrt.decompositions.recurrent.layer import GATES
from torch_pjrt.decompositions.recurrent.lstm import is_for_library, lstm_layer

FEW = 4  # sequences up to this length are recorded cell by cell


class Plain:
    """Sequences of one length: (length, batch, features)."""

    def __init__(self, x: Tensor) -> None:
        self.length: int = x.shape[0] if x.dim() == 3 else 0
        self.batch: int = x.shape[1] if x.dim() == 3 else 0

    def reverses(self, direction: int) -> bool:
        """Whether the loop runs backwards for this direction."""
        return direction == 1

    def padded(self, gates: Tensor, direction: int) -> Tensor:
        """Returns the gates as operands of the loop: (length, batch, features)."""
        return gates

    def outputs(self, states: Tensor, direction: int) -> Tensor:
        return states

    def last(self, states: Tensor, direction: int) -> Tensor:
        return states[0 if direction else -1]


class Packed:
    """A ``PackedSequence``, longest first: (elements, features), step by step, of the sequences that are that long.

    The loop runs all sequences to the length of the longest, and results after a sequence's end are discarded. For the
    backward direction each sequence is reversed first, so that all begin together.
    """

    def __init__(self, x: Tensor, batch_sizes: Tensor) -> None:
        self.length, self.batch = len(batch_sizes), int(batch_sizes[0]) if len(batch_sizes) else 0
        step, sequence = torch.arange(self.length)[:, None], torch.arange(self.batch)
        valid = sequence < batch_sizes[:, None]
        lengths = valid.sum(0)
        begins = batch_sizes.cumsum(0) - batch_sizes
        back = (lengths - 1 - step).clamp(min=0)
        element = begins[:, None] + sequence
        self.is_whole = x.dim() == 2 and int(batch_sizes.sum()) == x.shape[0]

        def on_device(index: Tensor) -> Tensor:
            return index.to(x.device)

        self.elements = [on_device(i.where(valid, 0).flatten()) for i in (element, element.gather(0, back))]
        self.places = [on_device((i * self.batch + sequence)[valid]) for i in (step, back)]
        self.ends = on_device((lengths - 1) * self.batch + sequence)

    def reverses(self, direction: int) -> bool:
        return False

    def padded(self, gates: Tensor, direction: int) -> Tensor:
        return gates.index_select(0, self.elements[direction]).reshape(self.length, self.batch, -1)

    def outputs(self, states: Tensor, direction: int) -> Tensor:
        return states.flatten(0, 1).index_select(0, self.places[direction])

    def last(self, states: Tensor, direction: int) -> Tensor:
        return states.flatten(0, 1).index_select(0, self.ends)


def _fits(
    cell: str, tensors: Sequence[Tensor], states: Sequence[Tensor], params: Sequence[Tensor], batch: int, runs: int
) -> bool:
    """Whether loops can run the call. Other calls, errors included, are PyTorch's own."""
    x = tensors[0]
    if not x.dtype.is_floating_point or any(t.dtype != x.dtype or t.device != x.device for t in tensors):
        return False
    if 0 in x.shape or any(s.dim() != 3 for s in states) or len(params) % runs:
        return False
    hidden = states[0].shape[2]
    if hidden == 0 or any(s.shape != (runs, batch, hidden) for s in states):
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0:
        return False
    return params[1].shape == (GATES[cell] * hidden, hidden)


def _layers(
    cell: str,
    x: Tensor,
    sequences: Plain | Packed,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...] | None:
    """Runs all layers and directions; returns None if loops can't run the call."""
    directions, each = 2 if bidirectional else 1, 4 if biases else 2
    runs = layers * directions
    if not isinstance(sequences.length, int) or sequences.length <= FEW or len(params) != runs * each:
        return None
    if not _fits(cell, (x, *states, *params), states, params, sequences.batch, runs):
        return None
    ends: list[list[Tensor]] = [[] for _ in states]
    y = x
    for layer in range(layers):
        if layer and dropout and train:
            y = torch.dropout(y, dropout, True)
        given = []
        for direction in range(directions):
            i = layer * directions + direction
            w_ih, w_hh, *b = params[i * each : (i + 1) * each]
            if w_ih.shape != (w_hh.shape[0], y.shape[-1]):
                return None
            inner = b[1] if b and cell == "gru" else None
            bias = None if not b else b[0] if inner is not None else b[0] + b[1]
            state, reverse = [of[i] for of in states], sequences.reverses(direction)
            if cell == "lstm" and isinstance(sequences, Plain) and is_for_library(y):
                h0, c0 = state
                outputs, *last = lstm_layer(y, w_ih, w_hh, bias, h0, c0, reverse)
            else:
                gates = sequences.padded(torch.nn.functional.linear(y, w_ih, bias), direction)
                hx, cx = (*state, None)[:2]
                hidden, cells, _ = torch.ops.torch_pjrt.recurrent_layer(gates, hx, cx, w_hh, inner, cell, reverse)
                last = [sequences.last(of, direction) for of in (hidden, cells)[: len(ends)]]
                outputs = sequences.outputs(hidden, direction)
            for end, of in zip(ends, last, strict=True):
                end.append(of)
            given.append(outputs)
        y = given[0] if directions == 1 else torch.cat(given, -1)
    return y, *(torch.stack(end) for end in ends)


def _in_precision(
    cell: str, x: Tensor, sequences: Plain | Packed, states: Sequence[Tensor], params: Sequence[Tensor], *rest: Any
) -> tuple[Tensor, ...] | None:
    """Runs the layers under autocast, in the lower precision as on CUDA; a GRU on the CPU is not autocast."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return _layers(cell, x, sequences, states, params, *rest)
    floats = (torch.float32, torch.float16, torch.bfloat16)
    if (cell == "gru" and kind == "cpu") or any(t.dtype not in floats for t in (x, *states, *params)):
        return None
    dtype = torch.get_autocast_dtype(kind)
    with torch.autocast(kind, enabled=False):
        states, params = ([t.to(dtype) for t in tensors] for tensors in (states, params))
        return _layers(cell, x.to(dtype), sequences, states, params, *rest)


def _of_plain(cell: str, op: Any) -> Callable[..., Any]:
    """Returns the operator's kernel: loops, or PyTorch's composite kernel."""

    def run(x: Tensor, hx: Any, params: Sequence[Tensor], *rest: Any) -> Any:
        *others, batch_first = rest
        y = x.transpose(0, 1) if batch_first and x.dim() == 3 else x
        results = _in_precision(cell, y, Plain(y), hx if cell == "lstm" else [hx], params, *others)
        if results is None:
            return op._op_dk(DispatchKey.CompositeImplicitAutograd, x, hx, params, *rest)
        return (results[0].transpose(0, 1), *results[1:]) if batch_first else results

    return run


def _of_packed(cell: str, op: Any) -> Callable[..., Any]:
    def run(x: Tensor, batch_sizes: Tensor, hx: Any, params: Sequence[Tensor], *rest: Any) -> Any:
        results = None
        if type(batch_sizes) is Tensor and batch_sizes.is_cpu and len(batch_sizes) > FEW:
            sequences = Packed(x, batch_sizes)
            if sequences.is_whole:
                results = _in_precision(cell, x, sequences, hx if cell == "lstm" else [hx], params, *rest)
        if results is None:
            return op._op_dk(DispatchKey.CompositeImplicitAutograd, x, batch_sizes, hx, params, *rest)
        return results

    return run


_OPERATORS = {name: getattr(torch.ops.aten, name) for name in GATES}
KERNELS = {operator.input: _of_plain(cell, operator.input) for cell, operator in _OPERATORS.items()}
_aten = torch.library.Library("aten", "IMPL")
for _cell, _operator in _OPERATORS.items():
    for _key in ("AutogradPrivateUse1", "PrivateUse1"):
        _aten.impl(f"{_cell}.input", KERNELS[_operator.input], _key)
        _aten.impl(f"{_cell}.data", _of_packed(_cell, _operator.data), _key)
