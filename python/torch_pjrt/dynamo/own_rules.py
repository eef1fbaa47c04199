"""Where PyTorch has a decomposition of an op and the device a rule, a captured graph holds the op.

While AOTAutograd traces, PyTorch's dispatcher looks for kernels in Python first, and some decompositions are registered
there: an op with a derivative of its own would reach the backend in pieces, by other formulas than on the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

Kernel = Callable[..., Tensor]
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
_RESAMPLINGS = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_trilinear3d", "upsample_bicubic2d",
)  # fmt: skip
_OTHERS = ("hardshrink", "softshrink", "multi_margin_loss", "multilabel_margin_loss_forward")


def _is_symbolic(x: Tensor, *rest: Any) -> bool:
    return any(isinstance(size, torch.SymInt) for size in (*x.shape, *pytree.tree_leaves(rest)))


def _of_sizes(op: OpOverload, pytorchs: Kernel) -> Kernel:
    """A resampling with its derivative; its gradient has no Meta kernel for symbolic sizes."""

    def resample(x: Tensor, *rest: Any) -> Tensor:
        if _is_symbolic(x, *rest):
            return pytorchs(x, *rest)
        result: Tensor = op._op_dk(DispatchKey.AutogradCPU, x, *rest)  # the same kernel on every device
        return result

    return resample


def _of_scales(op: OpOverload, pytorchs: Kernel) -> Kernel:
    """The overload that takes scales, by ``op``, which takes sizes."""

    def resample(x: Tensor, output_size: Sequence[int] | None, *rest: Any) -> Tensor:
        from torch._decomp.decompositions import upsample_compute_output_size

        if _is_symbolic(x, output_size, rest):
            return pytorchs(x, output_size, *rest)
        *middle, factors = rest
        sizes = upsample_compute_output_size(x.size(), output_size, factors)
        result: Tensor = op(x, sizes, *middle, *(factors or [None] * len(sizes)))
        return result

    return resample


def _kernels() -> dict[OpOverload, Callable[[Kernel], Kernel | None]]:
    """What stands for PyTorch's entries of each overload; None: nothing."""
    kernels: dict[OpOverload, Callable[[Kernel], Kernel | None]] = {}
    for name in _OTHERS:
        kernels[getattr(torch.ops.aten, name).default] = lambda _: None
    for name in _RESAMPLINGS:
        op = getattr(torch.ops.aten, name)
        kernels[op.default] = functools.partial(_of_sizes, op.default)
        kernels[op.vec] = functools.partial(_of_scales, op.default)
    return kernels


@contextmanager
def own_rules() -> Iterator[None]:

    kernels = _kernels()
    before = {op: {key: op.py_kernels[key] for key in _KEYS if key in op.py_kernels} for op in kernels}
    for op, kernel_for in kernels.items():
        for key, pytorchs in before[op].items():
            del op.py_kernels[key]
            if kernel := kernel_for(pytorchs):
                op.py_kernels[key] = kernel
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op in kernels:
            op.py_kernels.update(before[op])
            op._dispatch_cache.clear()
