"""Where PyTorch has a decomposition of an op and the device a rule, a captured graph holds the op.

While AOTAutograd traces, PyTorch's dispatcher looks for kernels in Python first, and some decompositions are registered
there: an op with a derivative of its own would reach the backend in pieces, by other formulas than on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch._decomp as _entries
from torch._C import DispatchKey

_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
_NAMES = ("hardshrink", "softshrink", "multi_margin_loss", "multilabel_margin_loss_forward")
assert _entries.decomposition_table  # imported for the entries that it makes
OPS = [getattr(torch.ops.aten, name).default for name in _NAMES]


@contextmanager
def own_rules() -> Iterator[None]:
    """Without PyTorch's entries of these ops. Not by two threads at once (``composites.taken_apart``)."""
    before = {op: {key: op.py_kernels.pop(key) for key in _KEYS if key in op.py_kernels} for op in OPS}
    for op in OPS:
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op in OPS:
            op.py_kernels.update(before[op])
            op._dispatch_cache.clear()
