"""``torchvision.ops.roi_align`` and ``roi_pool``: regions of images, read as rows of channels.

If a region's size decides how many pixels each of its bins reads, the number is data. Regions are then sorted by it
and processed in chunks, with as many steps as the largest region of a chunk needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torch_pjrt.decompositions.sampling import image_of, rows_of
from torch_pjrt.decompositions.table import computed_once, foreign
from torch_pjrt.program import loops

CHUNK = 16  # regions


def _exactly(x: Tensor) -> Tensor:
    """Returns x rounded to its dtype: later operations are not fused with those that compute it."""
    return computed_once(x)


def _divided(x: Tensor, divisor: int) -> Tensor:
    """Returns x / divisor. XLA would multiply by the reciprocal of a constant, which ``ceil`` and ``floor`` expose."""
    return x / torch.where(x.isnan(), x, divisor)


def _compute(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


class Axis(NamedTuple):
    """One dimension of all regions (regions, 1): the start, the size of a bin, and the number of samples of a bin."""

    start: Tensor
    bin: Tensor
    samples: Tensor
    bins: int
    size: int  # of the image

    def taps(self, sample: Tensor | int) -> list[tuple[Tensor, Tensor]]:
        """Returns two pixels of each bin (regions, bins) and their weights for one sample, a scalar or (1)."""
        bins = torch.arange(self.bins, device=self.start.device, dtype=self.start.dtype)
        x = self.start + bins * self.bin + (sample + 0.5) * self.bin / self.samples.clamp(min=1)
        counts = (x >= -1) & (x <= self.size)
        x = x.clamp(min=0)
        low = x.to(torch.int32).clamp(0, self.size - 1)
        fraction = torch.where(low >= self.size - 1, 0, x - low)
        high = (low + 1).clamp(max=self.size - 1)
        return [(low, torch.where(counts, 1 - fraction, 0)), (high, torch.where(counts, fraction, 0))]

    def of(self, regions: Tensor) -> Axis:
        start, size, samples = (x.index_select(0, regions) for x in self[:3])
        return self._replace(start=start, bin=size, samples=samples)


def _axis(low: Tensor, high: Tensor, scale: float, bins: int, size: int, ratio: int, aligned: bool) -> Axis:
    offset = 0.5 if aligned else 0.0
    start, end = _exactly(low * scale) - offset, _exactly(high * scale) - offset
    length = _exactly(end - start)
    if not aligned:
        length = length.clamp(min=1)
    step = _divided(length, bins)
    samples = torch.full_like(step, ratio) if ratio > 0 else step.ceil()
    return Axis(start, step, samples, bins, size)


def _points(first: Tensor, y: Tensor, x: Tensor, width: int) -> Tensor:
    """Returns rows (regions, bins, bins) of pixels; ``first`` (regions) has the first rows of the regions' images."""
    return first.reshape(-1, 1, 1) + y.unsqueeze(2) * width + x.unsqueeze(1)


Axes = tuple[Axis, Axis]


def _taps(first: Tensor, axes: Axes, iy: Tensor | int, ix: Tensor | int) -> list[tuple[Tensor, Tensor]]:
    """Returns the rows that one sample of each bin reads, and their weights, each (regions * bins * bins)."""
    rows, columns = axes[0].taps(iy), axes[1].taps(ix)
    return [
        (_points(first, y, x, axes[1].size).flatten(), (wy.unsqueeze(2) * wx.unsqueeze(1)).flatten())
        for y, wy in rows
        for x, wx in columns
    ]


def _is_sample(axes: Axes, iy: Tensor | int, ix: Tensor | int) -> Tensor:
    """Returns a mask of the bins (regions * bins * bins, 1) that have the sample; others may read infinite values."""
    has = (iy < axes[0].samples) & (ix < axes[1].samples)
    return has.expand(-1, axes[0].bins * axes[1].bins).reshape(-1, 1)


def _first_rows(rois: Tensor, n: int, height: int, width: int) -> Tensor:
    return rois[:, 0].to(torch.int32).clamp(0, n - 1) * (height * width)


Step = Callable[[Tensor, Tensor, Axes, Tensor, Tensor, list[Tensor]], Tensor]  # the argument of _sampled


def _regions(axes: Axes, more: Sequence[Tensor]) -> tuple[Axes, list[Tensor], Tensor]:
    """Returns the axes and the other tensors (regions, ...), padded to whole chunks by regions without samples, and the
    regions' indices (chunks, CHUNK), ordered by their numbers of samples."""
    missing = -len(more[0]) % CHUNK

    def filled(x: Tensor) -> Tensor:
        return torch.cat([x, x.new_zeros(missing, *x.shape[1:])])

    rows, columns = (
        axis._replace(start=filled(axis.start), bin=filled(axis.bin), samples=filled(axis.samples)) for axis in axes
    )
    samples = (rows.samples * columns.samples).flatten()
    return (rows, columns), [filled(x) for x in more], samples.sort().indices.reshape(-1, CHUNK)


def _flat(axes: Axes) -> list[Tensor]:
    return [x for axis in axes for x in axis[:3]]


def _axes_of(flat: Sequence[Tensor], like: Axes) -> Axes:
    rows, columns = (
        axis._replace(start=a, bin=b, samples=c) for axis, (a, b, c) in zip(like, (flat[:3], flat[3:6]), strict=True)
    )
    return rows, columns


def _sampled(step: Step, value: Tensor, first: Tensor, axes: Axes, given: list[Tensor]) -> Tensor:
    """Repeats ``value = step(value, first, axes, iy, ix, given)`` for the largest number of samples of a region."""
    rows, columns = (axis.samples.amax().clamp(min=0).to(torch.int32).reshape(1) for axis in axes)

    def goes_on(at: Tensor, _: Tensor, steps: Tensor, *__: Tensor) -> list[Tensor]:
        return [at < steps]

    def iteration(at: Tensor, value: Tensor, _: Tensor, columns: Tensor, first: Tensor, *rest: Tensor) -> list[Tensor]:
        own = _axes_of(rest, axes)
        return [at + 1, step(value, first, own, at // columns, at % columns, list(rest[6:]))]

    start = torch.zeros(1, dtype=torch.int32, device=value.device)
    return loops.while_loop(
        loops.apply, goes_on, iteration, [start, value], [rows * columns, columns, first, *_flat(axes), *given]
    )[1]


def _read_step(value: Tensor, first: Tensor, axes: Axes, iy: Tensor, ix: Tensor, given: list[Tensor]) -> Tensor:
    read = sum(given[0][index] * weight.unsqueeze(1) for index, weight in _taps(first, axes, iy, ix))
    return value + torch.where(_is_sample(axes, iy, ix), read, 0)


def _write_step(value: Tensor, first: Tensor, axes: Axes, iy: Tensor, ix: Tensor, given: list[Tensor]) -> Tensor:
    is_sample = _is_sample(axes, iy, ix)
    for index, weight in _taps(first, axes, iy, ix):
        value = value.index_add(0, index, torch.where(is_sample, given[0] * weight.unsqueeze(1), 0))
    return value


def _count(axes: Axes) -> Tensor:
    """Returns the number of samples, (regions, 1, 1)."""
    return (axes[0].samples * axes[1].samples).clamp(min=1).unsqueeze(2)


# The argument of _in_chunks: takes state, chunk, regions' indices, first rows, axes and others; returns the next state.
Iteration = Callable[[Tensor, Tensor, Tensor, Tensor, Axes, Sequence[Tensor]], Tensor]


def _in_chunks(
    iteration: Iteration, state: Tensor, first: Tensor, order: Tensor, axes: Axes, more: Sequence[Tensor]
) -> Tensor:
    """Repeats ``state = iteration(state, chunk, here, firsts, own axes, more)`` for each chunk of regions."""

    def goes_on(chunk: Tensor, *_: Tensor) -> list[Tensor]:
        return [chunk < len(order)]

    def next_chunk(chunk: Tensor, state: Tensor, first: Tensor, order: Tensor, *rest: Tensor) -> list[Tensor]:
        here = order.index_select(0, chunk).flatten()
        rows, columns = _axes_of(rest, axes)
        own = rows.of(here), columns.of(here)
        return [chunk + 1, iteration(state, chunk, here, first.index_select(0, here), own, rest[6:])]

    start = torch.zeros(1, dtype=torch.int64, device=state.device)
    return loops.while_loop(loops.apply, goes_on, next_chunk, [start, state], [first, order, *_flat(axes), *more])[1]


def _read(rows: Tensor, first: Tensor, axes: Axes) -> Tensor:
    """Returns (regions, bins, bins, C): the mean of each bin's samples."""
    bins = (axes[0].bins, axes[1].bins)
    regions, channels = len(first), rows.shape[1]
    padded, (firsts,), order = _regions(axes, [first])
    pixels = bins[0] * bins[1] * CHUNK

    def iteration(out: Tensor, chunk: Tensor, _: Tensor, first: Tensor, own: Axes, more: Sequence[Tensor]) -> Tensor:
        value = _sampled(_read_step, more[0].new_zeros(pixels, channels), first, own, [more[0]])
        value = value.reshape(CHUNK, -1, channels) / _count(own)
        return out.index_copy(0, chunk, value.reshape(1, pixels, channels))

    out = _in_chunks(iteration, rows.new_zeros(len(order), pixels, channels), firsts, order, padded, [rows])
    place = order.flatten().sort().indices[:regions]
    return out.reshape(-1, *bins, channels).index_select(0, place)


def _write(grad: Tensor, rows: Tensor, first: Tensor, axes: Axes) -> Tensor:
    """Adds ``grad`` (regions, bins, bins, C) to ``rows``: the transpose of ``_read``."""
    channels = rows.shape[1]
    grad = (grad / _count(axes).unsqueeze(3)).reshape(len(first), -1, channels)
    padded, (firsts, grads), order = _regions(axes, [first, grad])

    def iteration(rows: Tensor, _: Tensor, here: Tensor, first: Tensor, own: Axes, more: Sequence[Tensor]) -> Tensor:
        return _sampled(_write_step, rows, first, own, [more[0].index_select(0, here).reshape(-1, channels)])

    return _in_chunks(iteration, rows, firsts, order, padded, [computed_once(grads)])


def _align_axes(
    rois: Tensor, scale: float, bins: Sequence[int], size: Sequence[int], ratio: int, aligned: bool
) -> Axes:
    x1, y1, x2, y2 = rois[:, 1:].unsqueeze(2).unbind(1)
    return (
        _axis(y1, y2, scale, bins[0], size[0], ratio, aligned),
        _axis(x1, x2, scale, bins[1], size[1], ratio, aligned),
    )


@foreign("torchvision::roi_align")
def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """``input``: (N, C, H, W), ``rois``: (K, 5), the image's index and two corners. Returns (K, C, height, width)."""
    if not input.is_floating_point() or input.dtype != rois.dtype or rois.dim() != 2 or rois.shape[1] != 5:
        raise NotImplementedError("rois of another shape or dtype, or an input that is not of floats")
    n, channels, *size = input.shape
    bins = (pooled_height, pooled_width)
    if not len(rois) or not input.numel():
        return input.new_zeros(len(rois), channels, *bins)
    axes = _align_axes(_compute(rois), spatial_scale, bins, size, sampling_ratio, aligned)
    read = _read(computed_once(rows_of(_compute(input))), _first_rows(rois, n, *size), axes)
    return read.permute(0, 3, 1, 2).to(input.dtype).contiguous()


@foreign("torchvision::_roi_align_backward")
def roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """``grad``: (K, C, pooled_height, pooled_width). Returns (N, C, H, W)."""
    shape = (batch_size, channels, height, width)
    if not grad.numel():
        return grad.new_zeros(shape)
    bins, size = (pooled_height, pooled_width), (height, width)
    axes = _align_axes(_compute(rois), spatial_scale, bins, size, sampling_ratio, aligned)
    rows = _compute(grad).new_zeros(batch_size * height * width, channels)
    given = _compute(grad).permute(0, 2, 3, 1)
    written = _write(given, rows, _first_rows(rois, batch_size, height, width), axes)
    return image_of(written, shape).to(grad.dtype)


def _pool_axis(low: Tensor, high: Tensor, scale: float, bins: int, size: int) -> tuple[Tensor, Tensor]:
    """Returns the beginning and the end of each bin's window: (K, bins), each."""

    def rounded(x: Tensor) -> Tensor:  # half away from zero
        x = _exactly(x * scale)
        return torch.where(x.trunc() != x, (x.abs() + 0.5).floor().copysign(x), x)

    start, end = rounded(low), rounded(high)
    step = _divided((end - start + 1).clamp(min=1), bins)
    bin = torch.arange(bins, device=low.device, dtype=low.dtype)
    first = _exactly(bin * step).floor() + start
    last = _exactly((bin + 1) * step).ceil() + start
    return first.clamp(0, size).to(torch.int32), last.clamp(0, size).to(torch.int32)


@foreign("torchvision::roi_pool")
def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """``input``: (N, C, H, W), ``rois``: (K, 5). Returns maxima and their int32 indices in an image's plane, -1 for
    bins without a pixel: (K, C, height, width), each."""
    if not input.is_floating_point() or input.dtype != rois.dtype or rois.dim() != 2 or rois.shape[1] != 5:
        raise NotImplementedError("rois of another shape or dtype, or an input that is not of floats")
    n, channels, *size = input.shape
    bins = (pooled_height, pooled_width)
    if not len(rois) or not input.numel():
        shape = (len(rois), channels, *bins)
        return input.new_zeros(shape), torch.zeros(shape, dtype=torch.int32, device=input.device)
    x1, y1, x2, y2 = _compute(rois)[:, 1:].unsqueeze(2).unbind(1)
    top, bottom = _pool_axis(y1, y2, spatial_scale, bins[0], size[0])
    left, right = _pool_axis(x1, x2, spatial_scale, bins[1], size[1])
    missing = -len(rois) % CHUNK
    windows = [torch.nn.functional.pad(x, (0, 0, 0, missing)) for x in (top, bottom, left, right)]
    firsts = torch.nn.functional.pad(_first_rows(rois, n, *size), (0, missing))
    heights, widths = windows[1] - windows[0], windows[3] - windows[2]
    order = (heights.amax(1) * widths.amax(1)).sort().indices.reshape(-1, CHUNK)
    rows, width, pixels = computed_once(rows_of(input)), size[1], CHUNK * bins[0] * bins[1]
    lowest = torch.finfo(torch.float32 if input.dtype != torch.float16 else input.dtype).min

    def goes_on(chunk: Tensor, *_: Tensor) -> list[Tensor]:
        return [chunk < len(order)]

    def next_chunk(
        chunk: Tensor, out: Tensor, places: Tensor, rows: Tensor, firsts: Tensor, order: Tensor, *windows: Tensor
    ) -> list[Tensor]:
        here = order.index_select(0, chunk).flatten()
        top, bottom, left, right = (x.index_select(0, here) for x in windows)
        steps_y, steps_x = (bottom - top).amax().clamp(min=0).reshape(1), (right - left).amax().clamp(min=0).reshape(1)
        is_empty = ((bottom <= top).unsqueeze(2) | (right <= left).unsqueeze(1)).reshape(pixels, 1)
        best = torch.where(is_empty, torch.zeros_like(rows[:1]), torch.full_like(rows[:1], lowest))
        at = torch.full((pixels, channels), -1, dtype=torch.int32, device=rows.device)

        def more(step: Tensor, _: Tensor, __: Tensor, steps: Tensor, *___: Tensor) -> list[Tensor]:
            return [step < steps]

        def next_pixel(
            step: Tensor, best: Tensor, at: Tensor, _: Tensor, steps_x: Tensor, rows: Tensor, first: Tensor,
            top: Tensor, bottom: Tensor, left: Tensor, right: Tensor,
        ) -> list[Tensor]:  # fmt: skip
            y, x = top + step // steps_x, left + step % steps_x
            inside = ((y < bottom).unsqueeze(2) & (x < right).unsqueeze(1)).reshape(pixels, 1)
            plane = (y.unsqueeze(2) * width + x.unsqueeze(1)).clamp(0, size[0] * size[1] - 1)
            value = rows[(plane + first.reshape(-1, 1, 1)).flatten()]
            better = inside & (value > best)
            return [step + 1, torch.where(better, value, best), torch.where(better, plane.reshape(pixels, 1), at)]

        given = [steps_y * steps_x, steps_x, rows, firsts.index_select(0, here), top, bottom, left, right]
        start = torch.zeros(1, dtype=torch.int32, device=rows.device)
        _, best, at = loops.while_loop(loops.apply, more, next_pixel, [start, best, at], given)
        return [chunk + 1, out.index_copy(0, chunk, best[None]), places.index_copy(0, chunk, at[None])]

    start = torch.zeros(1, dtype=torch.int64, device=rows.device)
    out = rows.new_zeros(len(order), pixels, channels)
    places = torch.zeros(out.shape, dtype=torch.int32, device=rows.device)
    additional = [rows, firsts, order, *windows]
    _, out, places = loops.while_loop(loops.apply, goes_on, next_chunk, [start, out, places], additional)
    back = order.flatten().sort().indices[: len(rois)]

    def given(x: Tensor) -> Tensor:
        return x.reshape(-1, *bins, channels).index_select(0, back).permute(0, 3, 1, 2).contiguous()

    return given(out), given(places)


@foreign("torchvision::_roi_pool_backward")
def roi_pool_backward(
    grad: Tensor,
    rois: Tensor,
    argmax: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Tensor:
    """``grad``, ``argmax``: (K, C, pooled_height, pooled_width). Returns (N, C, H, W)."""
    pixels = batch_size * channels * height * width
    if not grad.numel():
        return grad.new_zeros(batch_size, channels, height, width)
    plane = rois[:, 0].to(torch.int64).clamp(0, batch_size - 1).unsqueeze(1) * channels
    plane = (plane + torch.arange(channels, device=grad.device)).reshape(-1, channels, 1, 1) * (height * width)
    index = torch.where(argmax < 0, pixels, plane + argmax)  # an extra element takes gradients of bins without pixels
    total = _compute(grad).new_zeros(pixels + 1).index_add(0, index.flatten(), _compute(grad).flatten())
    return total[:pixels].reshape(batch_size, channels, height, width).to(grad.dtype)
