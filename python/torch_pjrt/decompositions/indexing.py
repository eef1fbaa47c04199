"""``torch.repeat_interleave`` by a tensor, for calls that state the size of the result."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition


@decomposition("repeat_interleave")
def repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """Returns (output_size): each index i repeated ``repeats[i]`` times, for the (n) integers ``repeats``.

    Raises:
        NotImplementedError: ``output_size`` is not given, or the dtype is one that the host's kernel refuses, too.
        RuntimeError: ``repeats`` do not add up to ``output_size`` or one is negative; raised when results are read.
    """
    if output_size is None or repeats.dtype not in (torch.int64, torch.int32):
        raise NotImplementedError("its result's size depends on data; give output_size")
    ends = repeats.cumsum(0)
    fits = (repeats >= 0).all() & (repeats.sum() == output_size)
    ends = torch.ops.aten._functional_assert_async.msg(fits, "allocated size does not match required size", ends)
    place = torch.arange(output_size, device=repeats.device)
    return torch.searchsorted(ends, place, right=True).to(repeats.dtype)
