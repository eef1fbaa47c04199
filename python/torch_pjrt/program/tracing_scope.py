"""The scope in which a function is traced: its calls are recorded on placeholders, and none run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_pjrt import _C
from torch_pjrt.program.assertions import own_assertions

# A function mode doesn't see calls within a PyTorch function, and backward() is one. This mode sees the Python code
# that backward() calls (hooks, custom Functions).
in_backward: ContextVar[AbstractContextManager[Any] | None] = ContextVar("in_backward", default=None)


class WithoutReads(TorchDispatchMode):
    """Makes autograd choose formulas that read no value. For ``max()``, ``median()``, ``prod`` and ``cumprod`` PyTorch
    has one that does, which it takes where no mode is active."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def tracing() -> Iterator[None]:
    """Traces in this thread: reads of values that only a run has raise NotImplementedError. Scopes may be nested, and
    each has its own assertions.

    Modes around the scope don't affect the trace. Random numbers are drawn by the program's calls, not by the trace.
    """
    outer = _C.tracing()
    with torch.utils._python_dispatch._disable_current_modes():
        state = torch.pjrt.get_rng_state()
        _C.set_tracing(True)
        try:
            with own_assertions():
                yield
        finally:
            _C.set_tracing(outer)
            torch.pjrt.set_rng_state(state)
