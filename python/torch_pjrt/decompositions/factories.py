"""Factory functions whose kernels PyTorch has for some devices only."""

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
    """(window_length): i0(beta sqrt(1 - x²)) / i0(beta), x from -1 to 1, without the last point if ``periodic``."""
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
    """Returns (2, n), the rows and columns of a triangle of a (row, col) matrix in row-major order, by PyTorch's
    reference."""
    import torch._refs  # few programs need it

    options = {key: value for key, value in options.items() if value is not None}
    return getattr(torch._refs, name)(row, col, offset, device=device or torch.device("pjrt"), **options)


tril_indices = composition("tril_indices")(functools.partial(_triangle, "tril_indices"))
triu_indices = composition("triu_indices")(functools.partial(_triangle, "triu_indices"))


def _spaced(name: str, start: Any, end: Any, steps: int, dtype: torch.dtype, options: Any) -> Tensor | None:
    """Returns (steps) from start to end, in the dtype in which the CPU's kernel computes. Returns None if a tensor or
    the result is on another device; values must then be read."""
    tensors = [x for x in (start, end) if isinstance(x, Tensor)]
    for each, x in (("start", start), ("end", end)):
        torch._check(
            not isinstance(x, Tensor) or x.dim() == 0,
            lambda: (
                f"{name} only supports 0-dimensional start and end tensors, but got {each} with {x.dim()} "  # noqa: B023
                "dimension(s)."
            ),
        )
    torch._check(steps >= 0, lambda: "number of steps must be non-negative")
    device = options.get("device")
    if device is None or any(x.device.type != "pjrt" for x in (*tensors, torch.empty(0, device=device))):
        return None
    exact = dtype if dtype.is_floating_point or dtype.is_complex else torch.float64
    first, last = (
        x.to(dtype).to(exact) if isinstance(x, Tensor) else torch.tensor(x, dtype=exact, device=device)
        for x in (start, end)
    )
    if steps == 1:
        return first.reshape(1)
    step, places = (last - first) / (steps - 1), torch.arange(steps, device=device)
    forth, back = places.to(exact), (steps - 1 - places).to(exact)
    return torch.where(places < steps // 2, first + step * forth, last - step * back)


def _default_dtype(*ends: Any) -> torch.dtype:
    default = torch.get_default_dtype()
    is_complex = any(x.is_complex() if isinstance(x, Tensor) else isinstance(x, complex) for x in ends)
    return torch.promote_types(default, torch.complex32) if is_complex else default


def _read(x: Any) -> Any:
    return x.item() if isinstance(x, Tensor) else x


@composition("linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def linspace(start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    """Computes linspace from tensors without dimensions, whose values PyTorch's own kernel would read."""
    dtype = dtype or _default_dtype(start, end)
    made = _spaced("linspace", start, end, steps, dtype, options)
    return torch.linspace(_read(start), _read(end), steps, dtype=dtype, **options) if made is None else made.to(dtype)


@composition("logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: torch.dtype | None = None, **options: Any
) -> Tensor:
    dtype = dtype or _default_dtype(start, end)
    made = _spaced("logspace", start, end, steps, dtype, options)
    if made is None:
        return torch.logspace(_read(start), _read(end), steps, base, dtype=dtype, **options)
    return torch.pow(base, made).to(dtype)
