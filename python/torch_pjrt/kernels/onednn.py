"""Frozen convolutions (``export(freeze=True)``) by oneDNN, in a library that programs in files call without PyTorch.

``cmake -DTORCH_PJRT_ONEDNN=ON`` builds it beside ``torch_pjrt::Program`` (docs/files.md). A file that was exported
while it is registered names it, and the runner looks for it beside the file, in the folders that it is given, and
where it was.
"""

from __future__ import annotations

import math
import os

import torch

from torch_pjrt.kernels.call import Call
from torch_pjrt.kernels.register import RegisteredKernel, register_kernel

COMPOSITE = "frozen.convolution"
# Multiplications below which a call costs more than it saves.
LEAST = 1 << 19
CHANNELS_LAST = (1, 3, 2, 0)


def is_worth_it(call: Call) -> bool | str:
    """Of float32, and enough work."""
    if any(form.dtype != torch.float32 for form in (*call.operands, *call.results)):
        return "it is for float32"
    shapes = [form.shape for form in (*call.operands[:2], *call.results)]
    if any(0 in shape for shape in shapes) or len(shapes[0]) != 4:
        return "it is for two dimensions"
    if math.prod(shapes[2]) * math.prod(shapes[1][1:]) < LEAST:
        return "it is small"
    return True


def register(library: str | os.PathLike[str]) -> RegisteredKernel:
    """Has the library do what ``export(freeze=True)`` makes of convolutions, from now on.

    Args:
        library: ``libtorch_pjrt_onednn.so``, as CMake installs it.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it can't be loaded, or is registered already.
    """
    return register_kernel(
        COMPOSITE,
        library=library,
        symbol="torch_pjrt_frozen_convolution",
        when=is_worth_it,
        operand_layouts=lambda call: [
            CHANNELS_LAST if i != 1 and len(form.shape) == 4 else None for i, form in enumerate(call.operands)
        ],
        result_layouts=[CHANNELS_LAST],
    )
