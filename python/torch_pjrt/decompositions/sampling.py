"""``torch.nn.functional.grid_sample``: pixels are read and written as rows of channels."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import computed_once, decomposition

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)
CUBIC = -0.75  # the free coefficient of the cubic convolution in PyTorch's kernels

Tap = tuple[Tensor, Tensor, Tensor]  # a place in pixels, its weight, and the weight's slope


def _clipped(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Returns x clamped to the image, and its derivative, which is zero beyond the border."""
    return x.clamp(0, size - 1), ((x > 0) & (x < size - 1)).to(x.dtype)


def _reflected(x: Tensor, size: int, align_corners: bool) -> tuple[Tensor, Tensor]:
    """Returns x reflected at the border pixels' centers, or at their edges, until it is in the image, and its
    derivative."""
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
    """Returns weights and slopes of the pixels at -1, 0, 1 and 2, for a place t after 0."""

    def near(d: Tensor) -> tuple[Tensor, Tensor]:  # for pixels at most 1 away
        return ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1, (3 * (CUBIC + 2) * d - 2 * (CUBIC + 3)) * d

    def far(d: Tensor) -> tuple[Tensor, Tensor]:
        return ((d - 5) * d + 8) * d * CUBIC - 4 * CUBIC, (3 * d - 10) * d * CUBIC + 8 * CUBIC

    (a, da), (b, db), (c, dc), (d, dd) = far(t + 1), near(t), near(1 - t), far(2 - t)
    return [(a, da), (b, db), (c, -dc), (d, -dd)]


def _taps(grid: Tensor, size: int, mode: int, padding: int, align_corners: bool) -> tuple[list[Tap], Tensor]:
    """Returns the pixels that one coordinate of the grid reads, and the derivative of the place by the coordinate."""
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


Axes = list[tuple[list[Tap], Tensor]]


def _axes(grid: Tensor, sizes: Sequence[int], mode: int, padding: int, align_corners: bool) -> Axes:
    """Returns the taps along each dimension of the image; the grid's coordinates are in reverse order: x, y, z."""
    points = grid.reshape(grid.shape[0], 1, -1, len(sizes))
    return [_taps(points[..., -1 - d], size, mode, padding, align_corners) for d, size in enumerate(sizes)]


class Pixels(NamedTuple):
    """The pixels that each point reads, for all points of all images: (taps, N * points)."""

    taps: list[tuple[Tap, ...]]  # one per dimension
    index: Tensor  # among the pixels of all images
    inside: Tensor
    weight: Tensor


def _pixels(axes: Axes, sizes: Sequence[int]) -> Pixels:
    every = list(itertools.product(*(taps for taps, _ in axes)))
    indices, insides = [], []
    for taps in every:
        places = [place for place, _, _ in taps]
        inside = functools.reduce(
            torch.logical_and, ((x >= 0) & (x < size) for x, size in zip(places, sizes, strict=True))
        )
        index = torch.arange(len(inside), device=inside.device).reshape(-1, 1, 1)
        for x, size in zip(places, sizes, strict=True):
            index = index * size + torch.where(inside, x, 0).to(torch.int64)
        indices.append(index.flatten())
        insides.append(inside.flatten())
    weights = [_product(weight for _, weight, _ in taps).flatten() for taps in every]
    return Pixels(every, *(computed_once(torch.stack(x)) for x in (indices, insides, weights)))


def rows_of(image: Tensor) -> Tensor:
    """Reshapes (N, C, ...) to (N * pixels, C), so that the channels of a pixel are contiguous."""
    return image.flatten(2).transpose(1, 2).reshape(-1, image.shape[1])


def image_of(rows: Tensor, like: Sequence[int]) -> Tensor:
    """Inverts ``rows_of``, with the shape ``like``."""
    return rows.reshape(like[0], -1, like[1]).transpose(1, 2).reshape(like)


def _product(factors: Iterable[Tensor]) -> Tensor:
    return functools.reduce(torch.mul, factors)


@decomposition("grid_sampler_2d")
@decomposition("grid_sampler_3d")
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``input``: (N, C, H, W), ``grid``: (N, Ho, Wo, 2), or in three dimensions. Returns (N, C, Ho, Wo).

    Raises:
        NotImplementedError: ``input`` has no floats or ``grid`` has another dtype. The host's kernel raises, too.
    """
    if not input.is_floating_point() or grid.dtype != input.dtype:
        raise NotImplementedError("a grid of another dtype, or an input that is not of floats")
    n, channels, *sizes = input.shape
    axes = _axes(grid, sizes, interpolation_mode, padding_mode, align_corners)
    pixels = _pixels(axes, sizes)
    read = rows_of(input)[pixels.index] * pixels.weight.unsqueeze(-1)
    result = torch.where(pixels.inside.unsqueeze(-1), read, 0).sum(0)
    return image_of(result, (n, channels, *grid.shape[1:-1]))


@decomposition("grid_sampler_2d_backward")
@decomposition("grid_sampler_3d_backward")
def grid_sampler_backward(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor]:
    """``input``: (N, C, H, W), ``grid``: (N, Ho, Wo, 2), ``grad_output``: (N, C, Ho, Wo), or in three dimensions."""
    sizes = input.shape[2:]
    axes = _axes(grid, sizes, interpolation_mode, padding_mode, align_corners)
    pixels = _pixels(axes, sizes)
    rows, dy, inside = rows_of(input), computed_once(rows_of(grad_output)), pixels.inside.unsqueeze(-1)
    grad_input = None
    if output_mask[0]:
        written = torch.where(inside, dy * pixels.weight.unsqueeze(-1), 0)
        grad_rows = torch.zeros_like(rows).index_add(0, pixels.index.flatten(), written.flatten(0, 1))
        grad_input = image_of(grad_rows, input.shape)
    pulls = computed_once((torch.where(inside, rows[pixels.index], 0) * dy).sum(-1))
    along = []
    for d, (_, slope) in enumerate(axes):
        moved = torch.zeros_like(slope)
        for pull, taps in zip(pulls, pixels.taps, strict=True):
            weights = [weight for _, weight, _ in taps]
            moved = moved + pull.reshape(slope.shape) * _product([*weights[:d], taps[d][2], *weights[d + 1 :]])
        along.append(moved * slope)
    return grad_input, torch.stack(along[::-1], -1).reshape(grid.shape)
