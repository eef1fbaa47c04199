"""Frozen convolutions and products (``export(freeze=True)``) by oneDNN, in a library that programs in files call
without PyTorch.

``cmake -DTORCH_PJRT_ONEDNN=ON`` builds it beside ``torch_pjrt::Program`` (docs/files.md). A file that was exported
while it is registered names it, and the runner looks for it beside the file, in the folders that it is given, and
where it was.
"""

from __future__ import annotations

import math
import os
import threading
from types import TracebackType

import torch

from torch_pjrt import _C
from torch_pjrt.kernels.call import Call
from torch_pjrt.kernels.register import RegisteredKernel, register_kernel

CONVOLUTION, PRODUCT = "frozen.convolution", "frozen.product"
LEAST = 1 << 19  # multiplications of a product, below which a call costs more than it saves
LEAST_ROWS = 64  # of a product in float32: fewer take XLA as long
CHANNELS_LAST = (1, 3, 2, 0)
DTYPES = (torch.float32, torch.bfloat16)
OTHER_DTYPE = "it is for float32 and bfloat16"

_lock = threading.Lock()
_registered: list[OneDnn] = []


def _dtype(call: Call) -> torch.dtype | None:
    """That of all that it takes and gives; none where they differ."""
    dtypes = {form.dtype for form in (*call.operands, *call.results)}
    return dtypes.pop() if len(dtypes) == 1 else None


def is_convolution_worth_it(call: Call) -> bool | str:
    """Of float32 or bfloat16, and enough work."""
    dtype = _dtype(call)
    if dtype not in DTYPES:
        return OTHER_DTYPE
    images, weight = call.operands[:2]
    (result,) = call.results
    if any(0 in form.shape for form in (images, weight, result)) or len(images.shape) != 4:
        return "it is for two dimensions"
    multiplications = math.prod(result.shape) * math.prod(weight.shape[1:])
    stride, size = call.attributes["stride"][-1], result.shape[-1]
    if not _C.is_convolution_worth_a_call(dtype, multiplications, stride, size):
        return "it is small, or is of bfloat16 and strided to one or two columns"
    return True


def is_product_worth_it(call: Call) -> bool | str:
    """Of float32 or bfloat16, and enough work."""
    weight, rows = call.operands[1].shape, math.prod(call.operands[0].shape[:-1])
    return why_no_product(_dtype(call), rows, weight) or True


def why_no_product(dtype: torch.dtype | None, rows: int, weight: tuple[int, ...]) -> str:
    """Nothing where it does a product of so many rows by a matrix of these sizes."""
    if dtype not in DTYPES:
        return OTHER_DTYPE
    if rows * math.prod(weight) < LEAST:
        return "it is small"
    if dtype == torch.float32 and rows < LEAST_ROWS:
        return "it has few rows"
    return ""


class OneDnn:
    """The library's kernels in the table, until ``remove()``; also as ``with onednn.register(...):``."""

    def __init__(self, kernels: list[RegisteredKernel]) -> None:
        self._kernels = kernels

    def remove(self) -> None:
        """From now on nothing is exported with it. A second call does nothing."""
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
    """Is a library registered now?"""
    return bool(_registered)


def register(library: str | os.PathLike[str]) -> OneDnn:
    """Has the library do what ``export(freeze=True)`` makes of convolutions and products, from now on.

    Args:
        library: ``libtorch_pjrt_onednn.so``, as CMake installs it.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it can't be loaded, or is registered already.
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
