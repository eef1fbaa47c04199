"""``torch.nn.functional.fractional_max_pool2d`` and ``3d``: windows at random places, drawn by the caller."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition


def _starts(sample: Tensor, size: int, count: int, window: int) -> Tensor:
    """Returns (..., count), the first index of each window, for each ``sample`` (...); the last window ends at the
    border."""
    last = size - window
    if count == 1:
        return torch.full((*sample.shape, 1), last, dtype=torch.int64, device=sample.device)
    step = last / (count - 1)
    if sample.dtype != torch.float64:  # the kernels calculate in the images' dtype
        step = torch.tensor(step, dtype=sample.dtype).item()
    i = torch.arange(count, device=sample.device).to(sample.dtype)
    starts = ((i + sample[..., None]) * step).to(torch.int64) - (sample[..., None] * step).to(torch.int64)
    return torch.where(i == count - 1, last, starts)


def _forward(
    self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], samples: Tensor
) -> tuple[Tensor, Tensor]:
    dims = len(kernel_size)
    if not self.is_floating_point() or self.numel() == 0 or self.dim() not in (dims + 1, dims + 2):
        raise NotImplementedError("the kernel says what is wrong")
    sizes = self.shape[-dims:]
    if any(out + k - 1 > size for out, k, size in zip(output_size, kernel_size, sizes, strict=True)):
        raise NotImplementedError("the kernel says what is wrong")
    x = self.reshape(-1, self.shape[-dims - 1], *sizes)
    if samples.dim() != 3 or samples.shape[0] < x.shape[0] or samples.shape[1:] != (x.shape[1], dims):
        raise NotImplementedError("the kernel says what is wrong")
    samples = samples[: x.shape[0]].to(self.dtype)
    # Samples belong to the dimensions from the last to the first in 2d, and from the first to the last in 3d.
    order = (1, 0) if dims == 2 else (0, 1, 2)
    place = torch.zeros((), dtype=torch.int64, device=self.device)
    for d, (size, count, window) in enumerate(zip(sizes, output_size, kernel_size, strict=True)):
        starts = _starts(samples[..., order[d]], size, count, window)
        along = starts[..., None] + torch.arange(window, device=self.device)  # (N, C, count, window)
        shape = [1] * (2 * dims)
        shape[d], shape[dims + d] = count, window
        place = place * size + along.reshape(*along.shape[:2], *shape)
    outer = (*x.shape[:2], *output_size)
    place = place.expand(*outer, *kernel_size).reshape(*x.shape[:2], -1)
    windows = x.flatten(2).gather(2, place).reshape(*outer, -1)
    value, chosen = windows.max(-1)
    index = place.reshape(*outer, -1).gather(-1, chosen[..., None]).squeeze(-1)
    batch = self.shape[:-dims]
    return value.reshape(*batch, *output_size), index.reshape(*batch, *output_size)


def _backward(grad_output: Tensor, self: Tensor, dims: int, indices: Tensor) -> Tensor:
    grad = torch.zeros_like(self, memory_format=torch.contiguous_format).flatten(-dims)
    return grad.scatter_add(-1, indices.flatten(-dims), grad_output.flatten(-dims)).reshape(self.shape)


@decomposition("fractional_max_pool2d")
@decomposition("fractional_max_pool3d")
def fractional_max_pool(
    self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    """Raises:
    NotImplementedError: the arguments are wrong; the host's kernel then raises the error.
    """
    return _forward(self, kernel_size, output_size, random_samples)


@decomposition("fractional_max_pool2d_backward")
@decomposition("fractional_max_pool3d_backward")
def fractional_max_pool_backward(
    grad_output: Tensor, self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], indices: Tensor
) -> Tensor:
    return _backward(grad_output, self, len(kernel_size), indices)
