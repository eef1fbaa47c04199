"""The scope in which a function is traced: its calls are recorded on placeholders, and nothing runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.program.assertions import own_assertions

# Who sees PyTorch's functions is not asked while one of them runs, and backward() is one: what it calls of Python
# (hooks, custom Functions) is seen by this.
in_backward: ContextVar[AbstractContextManager[Any] | None] = ContextVar("in_backward", default=None)


@contextmanager
def tracing() -> Iterator[None]:
    """What only a run can tell raises NotImplementedError in this thread. Scopes may be within each other, and each
    has assertions of its own.

    The modes around it don't act on the trace, and random numbers are drawn by calls, not by the trace.
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
