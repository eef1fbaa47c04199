"""Who wants to see how programs are made, known ones too: a trace, while it is taken."""

from __future__ import annotations

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
    """The program of ``trace``, a ``_C.Trace`` that is to be compiled: its results, and what is written to its
    arguments."""
    tensors = [result for result in results if isinstance(result, torch.Tensor)]
    inputs = [each for each in placeholders if isinstance(each, torch.Tensor)]
    if len(inputs) == len(placeholders):
        tensors += [each for each, changed in zip(inputs, trace.changed(), strict=True) if changed]
    return _C.stablehlo(tensors, for_cpu=_C.platform_name() == "cpu") if tensors else ""


def show(trace: Any, placeholders: Sequence[Any], results: Sequence[Any]) -> None:
    """Before ``trace`` is compiled."""
    if (listener := _shown.get()) is not None:
        listener(text_of(trace, placeholders, results))


class Watch(Protocol):
    """Of one run of a function that is captured, within which it is entered."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: object) -> None: ...

    def tell(self, inputs: Named, results: Named, home: torch.device, text: str) -> None:
        """Of the run that became a program: what was there before, what it gives, the device that the program's own
        stands for, and the program."""


_watched: ContextVar[Callable[[str], Watch] | None] = ContextVar("watched", default=None)


@contextmanager
def watching(make: Callable[[str], Watch]) -> Iterator[None]:
    """Functions that are captured meanwhile are watched, each run by what ``make`` gives for their names."""
    token = _watched.set(make)
    try:
        yield
    finally:
        _watched.reset(token)


def watch_of(name: str) -> Watch | None:
    make = _watched.get()
    return None if make is None else make(name)
