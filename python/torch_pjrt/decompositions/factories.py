"""Tensors from numbers alone whose kernels PyTorch has for some devices only."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import composition


@composition("kaiser_window", "kaiser_window.periodic", "kaiser_window.beta")
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, dtype: torch.dtype | None = None, **options: Any
) -> Tensor:
    """(window_length): i0(beta sqrt(1 - x²)) / i0(beta), x from -1 to 1, the last point left out where ``periodic``."""
    dtype = dtype or torch.get_default_dtype()
    torch._check(dtype.is_floating_point, lambda: f"kaiser_window expects floating point dtypes, got: {dtype}")
    torch._check(
        window_length >= 0,
        lambda: f"kaiser_window requires non-negative window_length, got window_length={window_length}",
    )
    if window_length <= 1:
        return torch.ones(window_length, dtype=dtype, **options)
    last = window_length if periodic else window_length - 1
    x = (
        torch.arange(window_length, dtype=max(dtype, torch.float32, key=lambda d: d.itemsize), **options) * (2 / last)
        - 1
    )
    norm = torch.special.i0(torch.full_like(x, beta))
    return (torch.special.i0(beta * (1 - x * x).clamp_min(0).sqrt()) / norm).to(dtype)


def _triangle(name: str, row: int, col: int, offset: int = 0, *, device: Any = None, **options: Any) -> Tensor:
    """(2, n): the rows and columns of a triangle of a (row, col) matrix, in row-major order, by PyTorch's reference."""
    import torch._refs  # not everyone's

    options = {key: value for key, value in options.items() if value is not None}
    return getattr(torch._refs, name)(row, col, offset, device=device or torch.device("pjrt"), **options)


tril_indices = composition("tril_indices")(functools.partial(_triangle, "tril_indices"))
triu_indices = composition("triu_indices")(functools.partial(_triangle, "triu_indices"))
