"""Meta kernels of ops that have kernels in PyTorch, but no Meta kernel: they make the ops part of a program."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import meta


@meta("geqrf")
def geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    torch._check(self.dim() >= 2, lambda: f"torch.geqrf: input must have at least 2 dimensions. Got {self.dim()}")
    factors = torch.empty_like(self.mT, memory_format=torch.contiguous_format).mT
    return factors, self.new_empty((*self.shape[:-2], min(self.shape[-2:])))


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
