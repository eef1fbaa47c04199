"""``torch.linalg.lstsq`` by the singular values, where programs can't call LAPACK."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition, meta

# Drivers of ``linalg.lstsq`` that determine the rank, and return residuals only if it is full.
DECIDES_BY_RANK = ("gelsd", "gelss")


@meta("linalg_lstsq")
def outline(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Raises:
    NotImplementedError: whether there are residuals depends on data, or the kernel is to raise the error.
    """
    is_vector = self.dim() - 1 == b.dim() and self.shape[:-1] == b.shape
    known = driver in (None, "gels", "gelsy", *DECIDES_BY_RANK)
    if self.dim() < 2 or b.dim() < 1 or self.dtype != b.dtype or not known:
        raise NotImplementedError("the kernel says what is wrong")
    rows, columns = self.shape[-2:]
    if (b.shape[-1] if is_vector else b.shape[-2]) != rows:
        raise NotImplementedError("the kernel says what is wrong")
    if driver in DECIDES_BY_RANK and rows > columns:
        raise NotImplementedError("its residuals depend on the rank, which depends on data")
    right = b.unsqueeze(-1) if is_vector else b
    batch = torch.broadcast_shapes(self.shape[:-2], right.shape[:-2])
    solution = self.new_empty((*batch, right.shape[-1], columns)).mT
    if is_vector:
        solution = solution.squeeze(-1)
    real = self.dtype.to_real()
    has_residuals = driver == "gels" and rows > columns
    residuals = self.new_empty((*batch, right.shape[-1]) if has_residuals else (0,), dtype=real)
    rank = self.new_empty(self.shape[:-2] if driver != "gels" else (0,), dtype=torch.int64)
    singular = (*self.shape[:-2], min(rows, columns)) if driver in DECIDES_BY_RANK else (0,)
    return solution, residuals, rank, self.new_empty(singular, dtype=real)


@decomposition("linalg_lstsq")
def linalg_lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Raises:
    NotImplementedError: a matrix is empty.
    """
    if not self.numel() or not b.numel():
        raise NotImplementedError("there is nothing to solve")
    rows, columns = self.shape[-2:]
    is_vector = self.dim() - 1 == b.dim() and self.shape[:-1] == b.shape
    right = b.unsqueeze(-1) if is_vector else b
    u, s, vh = torch.linalg.svd(self, full_matrices=False)
    least = torch.finfo(self.dtype).eps * max(rows, columns) if rcond is None else rcond
    counts = torch.ones_like(s, dtype=torch.bool) if driver == "gels" else s > least * s[..., :1]
    inverse = torch.where(counts, 1 / s, 0).to(self.dtype)
    solution = vh.mH @ (inverse.unsqueeze(-1) * (u.mH @ right))
    residuals = s.new_empty(0)
    if driver == "gels" and rows > columns:
        residuals = (self @ solution - right).abs().square().sum(-2)
    rank = counts.sum(-1) if driver != "gels" else torch.empty(0, dtype=torch.int64, device=s.device)
    singular = s if driver in DECIDES_BY_RANK else s.new_empty(0)
    return solution.squeeze(-1) if is_vector else solution, residuals, rank, singular
