"""Composite ops that AOTAutograd takes apart before a backend sees them, and takes apart in another way here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch._decomp  # has PyTorch's own entries
from torch._C import DispatchKey

from torch_pjrt.decompositions.recurrent_modules import KERNELS as RECURRENT

KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
_dropout = torch.ops.aten.dropout.default.py_kernels[DispatchKey.CompositeImplicitAutograd]


def dropout(input: torch.Tensor, p: float, train: bool) -> Any:
    """Where nothing is dropped it is the input itself, as in eager, so a write to it is one to the input. PyTorch's own
    gives a copy."""
    return _dropout(input, p, train) if train and p != 0 else input


# Recurrent layers on the CPU, too, are captured as loops, and none as a call of oneDNN.
KERNELS: dict[Any, Callable[..., Any]] = {**RECURRENT, torch.ops.aten.dropout.default: dropout}
# They are put into the ops' own tables, for a while: no thread may do so while another does.
_lock = threading.RLock()


@contextmanager
def taken_apart() -> Iterator[None]:
    """In place of PyTorch's own."""
    with _lock:
        onednn = torch._C._get_mkldnn_enabled()
        before = {op: {key: op.py_kernels[key] for key in KEYS} for op in KERNELS}

        def put(kernels: Callable[[Any], dict[Any, Any]]) -> None:
            for op in KERNELS:
                op.py_kernels.update(kernels(op))
                op._dispatch_cache.clear()

        put(lambda op: dict.fromkeys(KEYS, KERNELS[op]))
        torch._C._set_mkldnn_enabled(False)
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(onednn)
            put(lambda op: before[op])
