"""Frozen convolutions and products (``export(freeze=True)``) by oneDNN, in a library that programs in files call
without PyTorch.

``cmake -DTORCH_PJRT_ONEDNN=ON`` builds it with ``torch_pjrt::Program`` (docs/files.md). A file that is exported while
the library is registered names it. The runner searches it next to the file, in the folders that it is given, and at its
path during the export.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from types import TracebackType

import torch

from torch_pjrt import _C
from torch_pjrt.kernels.call import Call
from torch_pjrt.kernels.register import RegisteredKernel, register_kernel

CONVOLUTION, PRODUCT = "frozen.convolution", "frozen.product"
CHANNELS_LAST = (1, 3, 2, 0)
DTYPES = (torch.float32, torch.bfloat16)
OTHER_DTYPE = "it is for float32 and bfloat16"

_lock = threading.Lock()
_registered: list[OneDnn] = []


def _dtype(call: Call) -> torch.dtype | None:
    """Returns the dtype of all operands and results; None if they differ."""
    dtypes = {form.dtype for form in (*call.operands, *call.results)}
    return dtypes.pop() if len(dtypes) == 1 else None


def is_convolution_worth_it(call: Call) -> bool | str:
    """Whether a convolution is of float32 or bfloat16 and large enough, or the reason why not."""
    dtype = _dtype(call)
    if dtype not in DTYPES:
        return OTHER_DTYPE
    images, weight = call.operands[:2]
    (result,) = call.results
    if any(0 in form.shape for form in (images, weight, result)) or len(images.shape) != 4:
        return "it is for two dimensions"
    work = math.prod(result.shape) * math.prod(weight.shape[1:])
    stride, size = call.attributes["stride"][-1], result.shape[-1]
    if not _C.is_claimed("file_convolution", dtype, work, stride=stride, size=size):
        return "it is small, or is of bfloat16 and strided to one or two columns"
    return True


def is_product_worth_it(call: Call) -> bool | str:
    """Whether a product is of float32 or bfloat16 and large enough, or the reason why not."""
    dtype, weight, rows = _dtype(call), call.operands[1].shape, math.prod(call.operands[0].shape[:-1])
    if dtype not in DTYPES:
        return OTHER_DTYPE
    return is_product_claimed(dtype, rows, weight) or "it is small, or has few rows"


def is_product_claimed(dtype: torch.dtype, rows: int, weight: Sequence[int]) -> bool:
    """Whether the library computes a product of ``rows`` by a matrix of these sizes (Note [Claims])."""
    return _C.is_claimed("file_product", dtype, rows * math.prod(weight), rows=rows)


class OneDnn:
    """The registered kernels of the library. ``remove()``, or leaving it as a context manager, unregisters them."""

    def __init__(self, kernels: list[RegisteredKernel]) -> None:
        self._kernels = kernels

    def remove(self) -> None:
        """Unregisters the kernels; later exports don't use them. A second call does nothing."""
        with _lock:
            if self in _registered:
                _registered.remove(self)
        for kernel in self._kernels:
            kernel.remove()

    def __enter__(self) -> OneDnn:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.remove()


def is_registered() -> bool:
    """Whether a library is registered."""
    return bool(_registered)


def register(library: str | os.PathLike[str]) -> OneDnn:
    """Registers the library's kernels for the convolutions and products of later ``export(freeze=True)`` calls.

    Args:
        library: ``libtorch_pjrt_onednn.so``, as CMake installs it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the library can't be loaded, or is already registered.
    """
    convolution = register_kernel(
        CONVOLUTION,
        library=library,
        symbol="torch_pjrt_frozen_convolution",
        when=is_convolution_worth_it,
        operand_layouts=lambda call: [
            CHANNELS_LAST if i != 1 and len(form.shape) == 4 else None for i, form in enumerate(call.operands)
        ],
        result_layouts=[CHANNELS_LAST],
    )
    try:
        product = register_kernel(
            PRODUCT, library=library, symbol="torch_pjrt_frozen_product", when=is_product_worth_it
        )
    except BaseException:
        convolution.remove()
        raise
    registered = OneDnn([convolution, product])
    with _lock:
        _registered.append(registered)
    return registered
