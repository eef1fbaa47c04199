"""``torch.isin``: PyTorch's own decomposition removes duplicates first, whose number is data."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition


@decomposition("isin")
def isin(
    elements: Tensor | float, test_elements: Tensor | float, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Returns a mask of ``elements`` (any shape) that equal one of ``test_elements``; NaN equals nothing. One of both
    may be a scalar."""
    dtype = torch.result_type(elements, test_elements)
    device = elements.device if isinstance(elements, Tensor) else test_elements.device  # type: ignore[union-attr]
    sought, given = (
        x.to(dtype) if isinstance(x, Tensor) else torch.full((), x, dtype=dtype, device=device)
        for x in (elements, test_elements)
    )
    if given.numel() == 0:
        return torch.full_like(sought, invert, dtype=torch.bool)
    ordered = given.flatten().sort().values
    above = torch.where(ordered.isnan(), torch.inf, ordered) if dtype.is_floating_point else ordered
    place = torch.searchsorted(above, sought.contiguous()).clamp_max(ordered.numel() - 1)
    return (ordered.take(place) == sought) != invert
