"""``torch.nn.functional.pdist``: the distances of ``torch.cdist`` above the diagonal."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition


def _pairs(count: int, device: torch.device) -> Tensor:
    """Returns the flat indices of a square's upper triangle, row by row."""
    places = torch.arange(count * count, device=device).reshape(count, count)
    row, column = torch.triu_indices(count, count, 1, device=device)
    return places[row, column]


@decomposition("_pdist_forward")
def pdist_forward(self: Tensor, p: float = 2.0) -> Tensor:
    """``self``: (N, M). Returns (N * (N - 1) / 2)."""
    count = len(self)
    if count < 2:
        return self.new_empty(0)
    return torch.ops.aten._cdist_forward(self, self, p, 2).flatten()[_pairs(count, self.device)]


@decomposition("_pdist_backward")
def pdist_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> Tensor:
    count = len(self)
    if count < 2:
        return torch.zeros_like(self)
    places = _pairs(count, self.device)

    def square(x: Tensor) -> Tensor:
        half = x.new_zeros(count * count).index_put((places,), x).reshape(count, count)
        return half + half.t()

    return torch.ops.aten._cdist_backward(square(grad.contiguous()), self, self, p, square(pdist))
