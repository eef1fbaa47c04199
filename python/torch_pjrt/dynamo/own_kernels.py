"""Changes the form in which AOTAutograd passes some ops to the backend.

While AOTAutograd traces, PyTorch's dispatcher looks for kernels in Python first, and PyTorch has kernels there that
decompose ops. They are replaced by the kernels here, or removed if the device has a rule for the op, so that a captured
graph has the op itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch._decomp  # registers PyTorch's own entries
from torch._C import DispatchKey
from torch._decomp.decompositions import upsample_compute_output_size

from torch_pjrt import _C
from torch_pjrt.decompositions.circular_padding import KERNELS as CIRCULAR
from torch_pjrt.decompositions.recurrent.modules import KERNELS as RECURRENT

Kernel = Callable[..., Any]
KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
_dropout = torch.ops.aten.dropout.default.py_kernels[DispatchKey.CompositeImplicitAutograd]


def dropout(input: torch.Tensor, p: float, train: bool) -> Any:
    """Returns the input itself if nothing is dropped, as in eager mode, where a write to the result is one to the
    input. PyTorch's kernel returns a copy."""
    return _dropout(input, p, train) if train and p != 0 else input


def resampling(packet: Any) -> Kernel:
    """Returns a kernel for the overload ``vec`` of an op that resamples images, which calls the op itself.

    The Meta kernels of the gradients take no symbolic sizes: with these it is PyTorch's decomposition."""
    decomposed = packet.vec.py_kernels[DispatchKey.Autograd]

    def vec(input: torch.Tensor, output_size: Any, *align_corners_and_scales: Any) -> Any:
        *align_corners, scales = align_corners_and_scales
        sizes = upsample_compute_output_size(input.size(), output_size, scales)
        if any(isinstance(size, torch.SymInt) for size in (*input.size(), *sizes)):
            return decomposed(input, output_size, *align_corners_and_scales)
        return packet.default(input, sizes, *align_corners, *(scales or [None] * len(sizes)))

    return vec


RESAMPLING = {
    overload: resampling(packet) if overload is packet.vec else None
    for name in (
        *(f"{kind}{rank}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)),
        *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
        *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
    )
    for packet in (getattr(torch.ops.aten, name),)
    for overload in (packet.default, packet.vec)
}

# Replacements at each of KEYS; with None the dispatcher continues to the op's own derivative.
KERNELS: dict[Any, Kernel | None] = {
    **RECURRENT,  # captured as loops on the CPU as well, and never as a call of oneDNN
    **CIRCULAR,
    **RESAMPLING,  # PyTorch's gather single elements
    torch.ops.aten.dropout.default: dropout,
    torch.ops.aten.hardshrink.default: None,
    torch.ops.aten.softshrink.default: None,
    torch.ops.aten.multi_margin_loss.default: None,
    torch.ops.aten.multilabel_margin_loss_forward.default: None,
}
# Held while kernels are in the ops' own tables: only one thread may change these at a time.
_lock = threading.RLock()
_onednn_of_user: list[bool] = []  # for each scope of own_kernels, whether oneDNN was enabled around it


def _put(op: Any, kernels: dict[DispatchKey, Kernel]) -> dict[DispatchKey, Kernel]:
    """Replaces the op's kernels at KEYS and returns the old ones."""
    before = {key: op.py_kernels.pop(key) for key in KEYS if key in op.py_kernels}
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()
    return before


def _kept_whole() -> dict[Any, Kernel]:
    """Returns kernels for enabled composites that PyTorch would decompose."""
    if _C.asked_composites() is None:
        return {}
    from torch_pjrt.composite_ops import kept

    return kept.traced_kernels(KERNELS)


@contextmanager
def onednn_as_in_eager() -> Iterator[None]:
    """Restores the user's setting of oneDNN within ``own_kernels``, for code that asks which library eager calls."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(_onednn_of_user[0] if _onednn_of_user else before)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextmanager
def own_kernels() -> Iterator[None]:
    """Replaces PyTorch's kernels by those here in the block, and disables oneDNN."""
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
