"""Runs a graph as one program, or as several around calls that can't be part of one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import fx
from torch.utils import _python_dispatch

from torch_pjrt import _C, report
from torch_pjrt.dynamo.around import calls_with_opaque
from torch_pjrt.dynamo.recompiles import argument_names
from torch_pjrt.dynamo.splitting import split
from torch_pjrt.dynamo.symbols import numbers_of
from torch_pjrt.dynamo.tracing import Refused, Tracer, operator_of, user_line


def compile_graph(module: fx.GraphModule, example_inputs: Sequence[Any], names: Sequence[str]) -> Compiled:
    """Compiles a graph of ATen calls to a function that takes a list of arguments and returns the graph's results.
    ``names`` are the user's names of the arguments."""
    compiled = Compiled(module, names)
    if needed := calls_with_opaque(module.graph, example_inputs):
        compiled.cut(Refused(needed))
        return compiled
    try:
        compiled.function.add(compiled.tracer.program(example_inputs))
    except Refused as refused:
        compiled.cut(refused)
    except ValueError:  # a size depends on data: the arguments of the first call determine it
        pass
    compiled.is_settled = all(isinstance(n, int) for value in example_inputs for n in numbers_of(value))
    return compiled


def report_cut(node: fx.Node, reason: str) -> None:
    """Reports a cut of the graph; raises in strict mode."""
    file, line = user_line(node)
    name = str(operator_of(node))
    place = f" at {file}:{line}" if file else ""
    if _C.strict():
        raise RuntimeError(f"[{name}] can't be compiled{place}: {reason} (an error in strict mode)")
    if report.is_active():
        report.record(report.GraphBreak(reason=f"{name}: {reason}", file=file, line=line))
    if _C.count_fallback(name):
        warnings.warn(
            f"[{name}] is not compiled{place}: {reason}. The graph is cut there; "
            "torch_pjrt.metrics()['host_fallbacks'] counts each case, TORCH_PJRT_STRICT=1 makes it an error.",
            stacklevel=2,
        )


def unobserved() -> AbstractContextManager[Any]:
    """Leaves the mode in which AOTAutograd makes the first call of a graph, to find custom ops that return arguments.

    In calls from a mode's Python the dispatcher skips conjugate bits, and a kernel that calls others, such as
    ``pinv``'s, would compute with tensors that are not conjugated."""
    mode = _python_dispatch._get_current_dispatch_mode()
    is_observed = type(mode).__name__ == "_AnalyzeCustomOpInputOutputMode"
    without: AbstractContextManager[Any] = _python_dispatch._pop_mode_temporarily() if is_observed else nullcontext()
    return without


class Compiled:
    """A graph that is compiled for the arguments of its calls, with refused calls run by PyTorch.

    Some calls are refused only in a run, when sizes that depend on data are known. That run continues with its piece
    cut once more. For the next run the whole graph is cut again, into as few pieces as possible.
    """

    def __init__(self, module: fx.GraphModule, names: Sequence[str]) -> None:
        self.module = module
        self.tracer = Tracer(module, names)
        self.function = _C.Function(self.tracer.program, self.as_captured)
        self.is_settled = False  # True if the first program is valid for every call
        self.refused: set[str] = set()
        self.pieces: list[Piece] = []
        self.parts: fx.GraphModule | None = None
        self._boxed_call = True

    def as_captured(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Runs the graph's own calls, for arguments without values, such as fake tensors."""
        with torch.no_grad():
            results: Sequence[Any] = self.module(*arguments)
        return results

    def cut(self, refused: Refused) -> None:
        for node, reason in refused.reasons.items():
            report_cut(node, reason)
        self.cut_around({node.name for node in refused.reasons})

    def cut_around(self, names: set[str]) -> None:
        self.refused |= names
        parts, compiled = split(self.module, {node for node in self.module.graph.nodes if node.name in self.refused})
        self.pieces = [Piece(getattr(parts, name)) for name in compiled]
        for name, piece in zip(compiled, self.pieces, strict=True):
            setattr(parts, name, piece)
        self.parts = parts

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        """Runs the graph, and empties the list so that arguments are released early."""
        if self.parts is None:
            try:
                return self.function(arguments)
            except Refused as refused:
                self.cut(refused)
        return self.run(arguments)

    def run(self, arguments: list[Any]) -> Sequence[Any]:
        assert self.parts is not None
        given = list(arguments)
        arguments.clear()
        pieces = self.pieces
        with torch.no_grad(), unobserved():
            results: Sequence[Any] = self.parts(*given)
        if more := {name for piece in pieces for name in piece.compiled.refused}:
            self.cut_around(more)
        return results

    def call_with(self, *arguments: Any) -> Sequence[Any]:
        """Runs the graph on arguments that are not in a list."""
        if self.parts is None:
            try:
                return self.function.call_with(*arguments)
            except Refused as refused:
                self.cut(refused)
        return self.run(list(arguments))

    @property
    def direct(self) -> Callable[..., Sequence[Any]]:
        """Returns ``call_with``, without a Python frame if no call can be refused any more."""
        is_program = self.is_settled and self.parts is None
        return self.function.call_with if is_program else self.call_with


class Piece(torch.nn.Module):
    """A part of a graph, with the graph's names of nodes."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__()
        self.compiled = Compiled(module, argument_names(module.graph, []))

    def forward(self, *arguments: Any) -> Sequence[Any]:
        return self.compiled(list(arguments))
