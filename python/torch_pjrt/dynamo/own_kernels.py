"""Ops that reach the backend in another form than AOTAutograd would give them.

While it traces, PyTorch's dispatcher looks for kernels in Python first. There PyTorch has kernels that take an op
apart. In their places are others here, or none: where the device has a rule for the op, a captured graph holds the op.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch._decomp  # has PyTorch's own entries
from torch._C import DispatchKey

from torch_pjrt import _C
from torch_pjrt.decompositions.circular_padding import KERNELS as CIRCULAR
from torch_pjrt.decompositions.recurrent.modules import KERNELS as RECURRENT

Kernel = Callable[..., Any]
KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
_dropout = torch.ops.aten.dropout.default.py_kernels[DispatchKey.CompositeImplicitAutograd]


def dropout(input: torch.Tensor, p: float, train: bool) -> Any:
    """Where nothing is dropped it is the input itself, as in eager, so a write to it is one to the input. PyTorch's own
    gives a copy."""
    return _dropout(input, p, train) if train and p != 0 else input


# In place of PyTorch's, at each of KEYS; None: the dispatcher goes on to the op's own derivative.
KERNELS: dict[Any, Kernel | None] = {
    **RECURRENT,  # on the CPU, too, they are captured as loops, and none as a call of oneDNN
    **CIRCULAR,
    torch.ops.aten.dropout.default: dropout,
    torch.ops.aten.hardshrink.default: None,
    torch.ops.aten.softshrink.default: None,
    torch.ops.aten.multi_margin_loss.default: None,
    torch.ops.aten.multilabel_margin_loss_forward.default: None,
}
# They are put into the ops' own tables, for a while: no thread may do so while another does.
_lock = threading.RLock()
_onednn_of_user: list[bool] = []  # is it enabled, around each scope of own_kernels


def _put(op: Any, kernels: dict[DispatchKey, Kernel]) -> dict[DispatchKey, Kernel]:
    """The op has these kernels at KEYS, and no others. Gives those that it had."""
    before = {key: op.py_kernels.pop(key) for key in KEYS if key in op.py_kernels}
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()
    return before


def _kept_whole() -> dict[Any, Kernel]:
    """The composites asked for that PyTorch would take apart."""
    if _C.asked_composites() is None:
        return {}
    from torch_pjrt.meanings import kept

    return kept.traced_kernels(KERNELS)


@contextmanager
def onednn_as_in_eager() -> Iterator[None]:
    """For who asks which library eager calls, within ``own_kernels``."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(_onednn_of_user[0] if _onednn_of_user else before)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextmanager
def own_kernels() -> Iterator[None]:
    """In place of PyTorch's own."""
    with _lock:
        _onednn_of_user.append(torch._C._get_mkldnn_enabled())
        put = {**KERNELS, **_kept_whole()}
        before = {op: _put(op, dict.fromkeys(KEYS, kernel) if kernel else {}) for op, kernel in put.items()}
        torch._C._set_mkldnn_enabled(False)
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(_onednn_of_user.pop())
            for op, kernels in before.items():
                _put(op, kernels)
