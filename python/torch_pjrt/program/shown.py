"""Who wants to see the StableHLO of the programs that are made, known ones too: a trace, while it is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from torch_pjrt import _C

_shown: ContextVar[Callable[[str], object] | None] = ContextVar("shown", default=None)


@contextmanager
def showing(listener: Callable[[str], object]) -> Iterator[None]:
    token = _shown.set(listener)
    try:
        yield
    finally:
        _shown.reset(token)


def show(trace: Any, placeholders: Sequence[Any], results: Sequence[Any]) -> None:
    """Before ``trace``, a ``_C.Trace``, is compiled: what its results are, and what is written to its arguments."""
    listener = _shown.get()
    if listener is None:
        return
    tensors = [result for result in results if isinstance(result, torch.Tensor)]
    inputs = [each for each in placeholders if isinstance(each, torch.Tensor)]
    if len(inputs) == len(placeholders):
        tensors += [each for each, changed in zip(inputs, trace.changed(), strict=True) if changed]
    listener(_C.stablehlo(tensors, for_cpu=_C.platform_name() == "cpu") if tensors else "")
