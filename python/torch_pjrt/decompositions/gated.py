"""Forward-mode derivatives of ``torch.nn.functional.glu``, which PyTorch has for the CPU and CUDA only."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition


@decomposition("glu_jvp", meta=True)
def glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Tensor:
    """``glu``: a s(b), where ``x`` is the concatenation of a and b."""
    gate = x.chunk(2, dim)[1].sigmoid()
    da, db = dx.chunk(2, dim)
    return da * gate + glu * (1 - gate) * db


@decomposition("glu_backward_jvp", meta=True)
def glu_backward_jvp(grad_x: Tensor, grad_glu: Tensor, x: Tensor, dgrad_glu: Tensor, dx: Tensor, dim: int) -> Tensor:
    """``grad_x``: the concatenation of grad s(b) and grad a s'(b)."""
    a, b = x.chunk(2, dim)
    da, db = dx.chunk(2, dim)
    gate = b.sigmoid()
    slope = gate * (1 - gate)
    of_a = dgrad_glu * gate + grad_glu * slope * db
    of_b = slope * (dgrad_glu * a + grad_glu * (da + a * (1 - 2 * gate) * db))
    return torch.cat([of_a, of_b], dim)
