"""The backward of ``torch.nn.utils.weight_norm``: PyTorch has a decomposition of its forward only."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition


@decomposition("_weight_norm_interface_backward")
def weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Returns the gradients of v and g in w = v * g / norm(v), normed over all other dimensions (Salimans and Kingma,
    2016)."""
    others = [d for d in range(saved_v.dim()) if d != dim % saved_v.dim()]
    dtype = saved_norms.dtype
    grad, v, g = grad_w.to(dtype), saved_v.to(dtype), saved_g.to(dtype)
    along = (grad * v).sum(others, keepdim=True) / saved_norms
    grad_v = g / saved_norms * (grad - v * (along / saved_norms))
    return grad_v.to(torch.promote_types(saved_v.dtype, grad_w.dtype)), along.to(saved_g.dtype)
