"""Traces of recorded calls: of a block of lazy code, and of functions that ``compile_step`` and ``jit`` capture."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary, WeakIdRef

from torch_pjrt import _C
from torch_pjrt.program.shown import Named, watch_with, watching
from torch_pjrt.program.subclasses import is_subclass, leaves
from torch_pjrt.traces import rules
from torch_pjrt.traces.source import Source
from torch_pjrt.traces.trace import Trace, Traces
from torch_pjrt.traces.watched import Watched, settle
from torch_pjrt.traces.watcher import Watcher, user_frame


def add_stages(traces: Traces, whose: str, watched: Watched, programs: list[str]) -> None:
    """Adds the stages of one region or function: recorded, with subclasses as values; unrolled; the programs."""
    number = traces.graphs
    traces.graphs += 1
    ending = f"_{number}" if number else ""
    for name, what, write in (
        ("recorded_with_subclasses", "as recorded, with subclasses", watched.with_subclasses),
        ("recorded", "as recorded, unrolled", watched.unrolled),
    ):
        source = Source()
        write(source, name)
        stage = f"{whose} {what}"
        traces.append(Trace.of(stage, name, source, watched.prologue(source), name + ending, "Recorded with:"))
    for i, text in enumerate(programs):
        label = f"stablehlo{ending}" + (f"_{i}" if i else "")
        traces.append(Trace(f"StableHLO of {whose}", label, text, "mlir"))
    traces.accounts.append(watched.accounts)


class CaptureWatch:
    """Watches one run of a function that is captured."""

    def __init__(self, reported: Sequence[Traces], name: str) -> None:
        self.reported, self.name = reported, name
        self.watcher = Watcher()

    def __enter__(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(rules.active(self.watcher, above_autograd=True))
            stack.enter_context(self.watcher)
            self.stack = stack.pop_all()

    def __exit__(self, *exception: Any) -> None:
        self.stack.__exit__(*exception)

    def report(self, inputs: Named, results: Named, home: torch.device, text: str) -> None:
        watched = Watched(self.watcher, inputs, results, home)
        for traces in self.reported:
            add_stages(traces, self.name, watched, [text])


class Captures:
    """Collects the stages of every function that is captured while it watches."""

    def __init__(self, traces: Traces | None = None) -> None:
        self.traces = Traces() if traces is None else traces

    def watch(self, name: str, of: Sequence[Any]) -> CaptureWatch:
        return CaptureWatch([each.traces for each in of], name)


watch_with(Captures, rules.are_there)


def captures(call: Callable[[], Any]) -> Traces:
    """Returns the stages of the functions that ``call`` captures."""
    watcher = Captures()
    with watching(watcher):
        call()
    return watcher.traces


def held_by(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors that a variable holds, each with the expression by which the user would name it."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        for inner, tensor in (*value.named_parameters(name), *value.named_buffers(name)):
            yield inner, tensor
    elif isinstance(value, torch.optim.Optimizer):
        for i, state in enumerate(value.state.values()):
            for key, tensor in state.items():
                if isinstance(tensor, torch.Tensor):
                    yield f"{name}.{key}.{i}", tensor
    elif isinstance(value, (list, tuple, dict)):
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, torch.Tensor):
                yield name + pytree.keystr(path), leaf


class _Blocks:
    """The open blocks, at most one per thread; each is notified of the programs that its thread runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_thread: dict[int, tracing] = {}

    def open(self, block: tracing) -> None:
        with self.lock:
            if self.by_thread.setdefault(threading.get_ident(), block) is not block:
                raise RuntimeError("torch_pjrt.tracing() within torch_pjrt.tracing(): the outer one tells all")
            _C.set_run_listener(self.hear)

    def close(self) -> None:
        with self.lock:
            del self.by_thread[threading.get_ident()]
            if not self.by_thread:
                _C.set_run_listener(None)  # type: ignore[arg-type]

    def hear(self, stablehlo: str) -> None:
        block = self.by_thread.get(threading.get_ident())
        if block is not None:
            block.programs.append(stablehlo)


_blocks = _Blocks()


class tracing:
    """Shows what the lazy device records in a block, stage by stage: ``with torch_pjrt.tracing() as traces: ...``.

    After the block, ``traces`` has three kinds of stages: the recorded calls with tensor subclasses as values
    (``"recorded_with_subclasses"``); the calls unrolled to plain tensors, each line with the subclass's call that it
    comes from (``"recorded"``); and the StableHLO of each program that ran in the block or is pending at its end
    (``"stablehlo"``, ``"stablehlo_1"``, …). The Python stages take the tensors that existed before the block, and
    return the new tensors that the variables of the enclosing function hold, gradients included. A function that
    ``compile_step`` or ``jit`` captures in the block has its own stages before those of the block.

    Only the block's thread is traced, and backward runs in it. Functions compiled by ``torch.compile`` run uncompiled.

    Raises:
        RuntimeError: the thread is already in such a block.
    """

    def __init__(self) -> None:
        self.traces = Traces()
        self.watcher = Watcher()
        self.programs: list[str] = []
        self.before: Any = WeakIdKeyDictionary(ref_type=WeakIdRef)  # tensors that the function's variables held

    def __enter__(self) -> Traces:
        self.frame = user_frame()
        for _, tensor in self._held():
            self.before[tensor] = True
        with ExitStack() as stack:
            stack.enter_context(watching(Captures(self.traces)))
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            _blocks.open(self)
            stack.callback(_blocks.close)
            stack.enter_context(self.watcher)
            self.stack = stack.pop_all()
        return self.traces

    def _held(self) -> list[tuple[str, torch.Tensor]]:
        variables = dict(self.frame.f_locals) if self.frame is not None else {}
        held = [each for name, value in variables.items() for each in held_by(name, value)]
        return held + [(f"{n}.grad", t.grad) for n, t in held if t.is_leaf and t.grad is not None]

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self.stack.__exit__(kind, *rest)
        held = self._held() if kind is None else []
        self.frame = None
        if kind is not None:
            return
        there = {part for owner, parts in self.watcher.inputs.items() for part in (owner, *(parts or {}).values())}
        inputs = [
            (n, t)
            for n, t in held
            if any(self.watcher.name_of(x) in there for x in (t, *leaves([t])))
            and (t in self.before or not is_subclass(t))
        ]
        settle(self.watcher, inputs)
        made = {self.watcher.name_of(t): (n, t) for n, t in held}
        results = [each for name, each in made.items() if name is not None and name not in self.watcher.inputs]
        pending = [t for t in leaves(t for _, t in results) if t.device.type == "pjrt" and _C.is_pending(t)]
        if pending:
            self.programs.append(_C.stablehlo(pending, for_cpu=_C.platform_name() == "cpu"))
        watched = Watched(self.watcher, inputs, results)
        if watched.events or self.programs:
            add_stages(self.traces, "the block", watched, self.programs)
