"""Isolates recording from the PyTorch state around it: no modes, no function transforms, no seals, and gradients
enabled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.overrides import _len_torch_function_stack, _pop_mode_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from torch_pjrt import _C


@contextmanager
def apart() -> Iterator[None]:
    """Isolates calls in the block, which belong to another program than the tracing or batching around them."""
    with ExitStack() as stack:
        stack.enter_context(_disable_current_modes())
        while _len_torch_function_stack() > 0:
            stack.enter_context(_pop_mode_temporarily())
        stack.enter_context(temporarily_clear_interpreter_stack())
        stack.enter_context(torch.inference_mode(False))
        stack.callback(_C.set_seal, _C.seal())
        _C.set_seal(None)
        yield
