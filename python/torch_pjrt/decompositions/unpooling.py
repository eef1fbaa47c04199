"""``max_unpool2d`` and ``max_unpool3d``: PyTorch's decompositions, with the CPU's check of the indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition


def _checked(indices: Tensor, output_size: Sequence[int]) -> Tensor:
    volumes = "x".join(str(size) for size in output_size)
    places = math.prod(output_size)
    fit = ((indices >= 0) & (indices < places)).all()
    message = f"Found an invalid max index (output volumes are of size {volumes})"
    return torch.ops.aten._functional_assert_async.msg(fit, message, indices)


@decomposition("max_unpool2d")
def max_unpool2d(self: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    """Raises RuntimeError, when results are read, if an index is outside of the result."""
    from torch._decomp.decompositions import max_unpool2d

    result: Tensor = max_unpool2d(self, _checked(indices, output_size), list(output_size))
    return result


@decomposition("max_unpool3d")
def max_unpool3d(
    self: Tensor, indices: Tensor, output_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """See max_unpool2d."""
    from torch._decomp.decompositions import max_unpool3d

    result: Tensor = max_unpool3d(self, _checked(indices, output_size), list(output_size), list(stride), list(padding))
    return result
