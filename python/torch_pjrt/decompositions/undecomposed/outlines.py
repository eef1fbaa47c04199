"""Meta kernels of ops that have kernels in PyTorch, but no Meta kernel: they make the ops part of a program."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import meta

# Drivers of ``linalg.lstsq`` that determine the rank, and return residuals only if it is full.
DECIDES_BY_RANK = ("gelsd", "gelss")


@meta("geqrf")
def geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    torch._check(self.dim() >= 2, lambda: f"torch.geqrf: input must have at least 2 dimensions. Got {self.dim()}")
    factors = torch.empty_like(self.mT, memory_format=torch.contiguous_format).mT
    return factors, self.new_empty((*self.shape[:-2], min(self.shape[-2:])))


@meta("linalg_lstsq")
def linalg_lstsq(
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


@meta("_ctc_loss_backward")
def ctc_loss_backward(grad: Tensor, log_probs: Tensor, *_: object, **__: object) -> Tensor:
    return torch.empty_like(log_probs, memory_format=torch.contiguous_format)


@meta("fractional_max_pool3d_backward")
def fractional_max_pool3d_backward(grad_output: Tensor, self: Tensor, *_: object) -> Tensor:
    return torch.empty_like(self, memory_format=torch.contiguous_format)


@meta("_standard_gamma_grad")
def standard_gamma_grad(self: Tensor, output: Tensor) -> Tensor:
    return torch.empty_like(self, memory_format=torch.contiguous_format)


@meta("_dirichlet_grad")
def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@meta("_sample_dirichlet")
def sample_dirichlet(self: Tensor, generator: torch.Generator | None = None) -> Tensor:
    return torch.empty_like(self, memory_format=torch.contiguous_format)


@meta("binomial")
def binomial(count: Tensor, prob: Tensor, generator: torch.Generator | None = None) -> Tensor:
    if torch.broadcast_shapes(count.shape, prob.shape) != count.shape:
        raise NotImplementedError("the kernel says what is wrong")
    return torch.empty_like(count, memory_format=torch.contiguous_format)
