"""The backward of ``torch.nn.functional.grid_sample`` in two dimensions, whose forward PyTorch decomposes."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)
CUBIC = -0.75  # the free coefficient of the cubic convolution, as in the kernels

Tap = tuple[Tensor, Tensor, Tensor]  # a place in pixels, its weight, and the weight's slope


def _clipped(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """A place within the image, and how it moves with x: not at all beyond the border."""
    return x.clamp(0, size - 1), ((x > 0) & (x < size - 1)).to(x.dtype)


def _reflected(x: Tensor, size: int, align_corners: bool) -> tuple[Tensor, Tensor]:
    """x reflected at the centers of the border's pixels, or at their edges, until it is within them."""
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if span == 0:
        return torch.zeros_like(x), torch.zeros_like(x)
    distance = (x - low).abs()
    flips, rest = (distance / span).floor(), distance.fmod(span)
    even = flips.remainder(2) == 0
    slope = torch.where(x < low, -1.0, 1.0).to(x.dtype) * torch.where(even, 1.0, -1.0).to(x.dtype)
    place, inside = _clipped(torch.where(even, rest, span - rest) + low, size)
    return place, slope * inside


def _padded(x: Tensor, size: int, padding: int, align_corners: bool) -> tuple[Tensor, Tensor]:
    if padding == BORDER:
        return _clipped(x, size)
    if padding == REFLECTION:
        return _reflected(x, size, align_corners)
    return x, torch.ones_like(x)


def _cubic(t: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Weights and slopes of the pixels at -1, 0, 1 and 2, of a place t after 0."""

    def near(d: Tensor) -> tuple[Tensor, Tensor]:  # at most 1 away
        return ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1, (3 * (CUBIC + 2) * d - 2 * (CUBIC + 3)) * d

    def far(d: Tensor) -> tuple[Tensor, Tensor]:
        return ((d - 5) * d + 8) * d * CUBIC - 4 * CUBIC, (3 * d - 10) * d * CUBIC + 8 * CUBIC

    (a, da), (b, db), (c, dc), (d, dd) = far(t + 1), near(t), near(1 - t), far(2 - t)
    return [(a, da), (b, db), (c, -dc), (d, -dd)]


def _taps(grid: Tensor, size: int, mode: int, padding: int, align_corners: bool) -> tuple[list[Tap], Tensor]:
    """The pixels that one coordinate of the grid reads, and how a place in pixels moves with the coordinate."""
    scale = (size - 1) / 2 if align_corners else size / 2
    x = (grid + 1) * scale - (0.0 if align_corners else 0.5)
    if mode == BICUBIC:
        first = x.floor()
        taps = _cubic(x - first)
        places = [_padded(first + k - 1, size, padding, align_corners)[0] for k in range(4)]
        return [(place, *tap) for place, tap in zip(places, taps, strict=True)], torch.full_like(x, scale)
    x, slope = _padded(x, size, padding, align_corners)
    one = torch.ones_like(x)
    if mode == NEAREST:
        return [(x.round(), one, torch.zeros_like(x))], slope * scale
    first = x.floor()
    return [(first, first + 1 - x, -one), (first + 1, x - first, one)], slope * scale


@decomposition("grid_sampler_2d_backward")
def grid_sampler_2d_backward(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor]:
    """``input``: (N, C, H, W), ``grid``: (N, Ho, Wo, 2), ``grad_output``: (N, C, Ho, Wo)."""
    n, channels, height, width = input.shape
    flat, dy = input.reshape(n, channels, -1), grad_output.reshape(n, channels, -1)
    points = grid.reshape(n, 1, -1, 2)
    columns, slope_x = _taps(points[..., 0], width, interpolation_mode, padding_mode, align_corners)
    rows, slope_y = _taps(points[..., 1], height, interpolation_mode, padding_mode, align_corners)
    grad_input, grad_x, grad_y = torch.zeros_like(flat), torch.zeros_like(slope_x), torch.zeros_like(slope_y)
    for x, weight_x, change_x in columns:
        for y, weight_y, change_y in rows:
            inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
            row, column = (torch.where(inside, place, 0).to(torch.int64) for place in (y, x))
            place = (row * width + column).expand_as(dy)
            if output_mask[0]:
                grad_input = grad_input.scatter_add(2, place, torch.where(inside, dy * (weight_x * weight_y), 0))
            pull = (torch.where(inside, flat.gather(2, place), 0) * dy).sum(1, keepdim=True)
            grad_x = grad_x + pull * (change_x * weight_y)
            grad_y = grad_y + pull * (weight_x * change_y)
    grad_grid = torch.stack([grad_x * slope_x, grad_y * slope_y], -1).reshape(grid.shape)
    return grad_input.reshape(input.shape) if output_mask[0] else None, grad_grid
