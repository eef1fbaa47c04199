"""Listeners that see how programs are made, including known ones: a trace while it is taken."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch

from torch_pjrt import _C

Named = Sequence[tuple[str, torch.Tensor]]

_shown: ContextVar[Callable[[str], object] | None] = ContextVar("shown", default=None)


@contextmanager
def showing(listener: Callable[[str], object]) -> Iterator[None]:
    token = _shown.set(listener)
    try:
        yield
    finally:
        _shown.reset(token)


def text_of(trace: Any, placeholders: Sequence[Any], results: Sequence[Any]) -> str:
    """Returns the program of ``trace``, a ``_C.Trace`` before compilation: its results, and writes to its arguments."""
    tensors = [result for result in results if isinstance(result, torch.Tensor)]
    inputs = [each for each in placeholders if isinstance(each, torch.Tensor)]
    if len(inputs) == len(placeholders):
        tensors += [each for each, changed in zip(inputs, trace.changed(), strict=True) if changed]
    return _C.stablehlo(tensors, for_cpu=_C.platform_name() == "cpu") if tensors else ""


def show(trace: Any, placeholders: Sequence[Any], results: Sequence[Any]) -> None:
    """Passes the program to the listener, before ``trace`` is compiled."""
    if (listener := _shown.get()) is not None:
        listener(text_of(trace, placeholders, results))


class Watch(Protocol):
    """Watches one run of a function that is captured; entered for the time of the run."""

    reported: Sequence[Any]  # receivers of the run

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: object) -> None: ...

    def report(self, inputs: Named, results: Named, home: torch.device, text: str) -> None:
        """Called for the run that became a program, with the tensors before it, its results, the device that the
        program's device replaces, and the program."""


class Watcher(Protocol):
    """Watches captures."""

    def watch(self, name: str, of: Sequence[Watcher]) -> Watch:
        """Returns a watch of a function of this name, for each of these watchers."""


_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())
_new_watcher: list[Callable[[], Watcher]] = []
_needed: list[Callable[[], bool]] = []


@contextmanager
def watching(watcher: Watcher | None) -> Iterator[None]:
    """Watches each run of functions that are captured in the block; a None adds no watcher."""
    token = _watchers.set((*_watchers.get(), watcher) if watcher is not None else _watchers.get())
    try:
        yield
    finally:
        _watchers.reset(token)


def watch_of(name: str) -> Watch | None:
    watchers = _watchers.get()
    if watchers:
        return watchers[0].watch(name, watchers)
    return new_watcher().watch(name, ()) if any(needed() for needed in _needed) else None


def watch_with(make: Callable[[], Watcher], needed: Callable[[], bool]) -> None:
    """Sets the watcher of functions captured with ``trace=True``, and the condition under which every capture is
    watched."""
    _new_watcher[:], _needed[:] = [make], [needed]


def new_watcher() -> Watcher:
    if not _new_watcher:  # torch_pjrt.traces sets it, which is imported when it is first needed
        importlib.import_module("torch_pjrt.traces")
    return _new_watcher[0]()
