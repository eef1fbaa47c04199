"""``torch.histogram`` and ``histogramdd``: searches each element's bin among the edges, and adds its weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition, meta


def _edges(low: Tensor, high: Tensor, bins: int) -> Tensor:
    """Returns (bins + 1) edges, computed from both ends as ``torch.linspace`` does."""
    i = torch.arange(bins + 1, device=low.device).to(low.dtype)
    step = (high - low) / bins
    return torch.where(i < (bins + 1) // 2, low + step * i, high - step * (bins - i))


def _edges_of(x: Tensor, bins: Sequence[int], bounds: Sequence[float] | None) -> list[Tensor]:
    """Returns the edges for each dimension of the points ``x`` (N, D)."""
    edges = []
    for d, count in enumerate(bins):
        if bounds is not None:
            low, high = (torch.full((), bound, dtype=x.dtype, device=x.device) for bound in bounds[2 * d : 2 * d + 2])
        elif x.shape[0]:
            low, high = x[:, d].min(), x[:, d].max()
            finite = low.isfinite() & high.isfinite()
            message = f"torch.histogramdd: dimension {d}'s range is not finite"
            low = torch.ops.aten._functional_assert_async.msg(finite, message, low)
        else:
            low, high = (torch.full((), bound, dtype=x.dtype, device=x.device) for bound in (0, 1))
        empty = low == high
        edges.append(_edges(torch.where(empty, low - 0.5, low), torch.where(empty, high + 0.5, high), count))
    return edges


def _counted(x: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """Returns the sum of the weights of the points ``x`` (N, D) in each bin; the last bin includes its upper edge."""
    sizes = [len(edge) - 1 for edge in edges]
    place = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
    inside = torch.ones(x.shape[0], dtype=torch.bool, device=x.device)
    for d, (edge, size) in enumerate(zip(edges, sizes, strict=True)):
        points = x[:, d].contiguous()
        inside = inside & (points >= edge[0]) & (points <= edge[-1])
        bin_of = torch.searchsorted(edge, points, right=True) - 1
        place = place * size + bin_of.clamp(0, size - 1)
    weights = torch.ones(x.shape[0], dtype=x.dtype, device=x.device) if weight is None else weight.reshape(-1)
    total = 1
    for size in sizes:
        total *= size
    hist = torch.zeros(total, dtype=x.dtype, device=x.device)
    hist = hist.index_add(0, torch.where(inside, place, 0), torch.where(inside, weights, 0)).reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for d, edge in enumerate(edges):
            hist = hist / edge.diff().reshape([-1 if i == d else 1 for i in range(len(sizes))])
    return hist


def _check(x: Tensor, weight: Tensor | None) -> None:
    """Raises for arguments that the kernels refuse, so that their own error is raised."""
    if not x.is_floating_point() or (weight is not None and (weight.dtype != x.dtype or weight.shape != x.shape)):
        raise NotImplementedError("the kernel says what is wrong")


def _check_edges(x: Tensor, edges: Sequence[Tensor]) -> None:
    if any(edge.dim() != 1 or edge.numel() < 2 or edge.dtype != x.dtype for edge in edges):
        raise NotImplementedError("the kernel says what is wrong")


@decomposition("histogram")
@meta("histogram.bin_ct")
@meta("histogram.bins_tensor")
def histogram(
    self: Tensor,
    bins: Tensor | int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """Raises:
    NotImplementedError: the arguments are wrong; the host's kernel then raises the error.
    RuntimeError: the range is that of the elements, which are not all finite; raised when results are read.
    """
    _check(self, weight)
    points = self.reshape(-1, 1)
    if isinstance(bins, Tensor):
        _check_edges(self, [bins])
        return _counted(points, [bins], weight, density), bins.clone()
    if bins <= 0 or (range is not None and (len(range) != 2 or not range[0] <= range[1])):
        raise NotImplementedError("the kernel says what is wrong")
    edges = _edges_of(points, [bins], range)
    return _counted(points, edges, weight, density), edges[0]


def _points(self: Tensor, count: int, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    if self.dim() < 2 or self.shape[-1] != count or not self.is_floating_point():
        raise NotImplementedError("the kernel says what is wrong")
    if weight is not None and (weight.dtype != self.dtype or weight.shape != self.shape[:-1]):
        raise NotImplementedError("the kernel says what is wrong")
    return self.reshape(-1, count), weight


def _check_counts(bins: Sequence[int], bounds: Sequence[float] | None) -> None:
    if any(count <= 0 for count in bins) or (bounds is not None and len(bounds) != 2 * len(bins)):
        raise NotImplementedError("the kernel says what is wrong")
    if bounds is not None and not all(low <= high for low, high in zip(bounds[::2], bounds[1::2], strict=True)):
        raise NotImplementedError("the kernel says what is wrong")


@decomposition("_histogramdd_bin_edges", meta=True)
def histogramdd_bin_edges(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> list[Tensor]:
    _check_counts(bins, range)
    return _edges_of(_points(self, len(bins), weight)[0], bins, range)


@decomposition("_histogramdd_from_bin_cts", meta=True)
def histogramdd_from_bin_cts(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    _check_counts(bins, range)
    points, weight = _points(self, len(bins), weight)
    return _counted(points, _edges_of(points, bins, range), weight, density)


@decomposition("_histogramdd_from_bin_tensors", meta=True)
def histogramdd_from_bin_tensors(
    self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    _check_edges(self, bins)
    points, weight = _points(self, len(bins), weight)
    return _counted(points, bins, weight, density)
