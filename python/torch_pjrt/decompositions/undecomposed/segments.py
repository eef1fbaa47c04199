"""``torch.segment_reduce``: reduces consecutive rows to one for each segment."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition

EMPTY = {"sum": 0.0, "mean": 0.0, "max": -torch.inf, "min": torch.inf, "prod": 1.0}
ALIKE = {"sum": "sum", "mean": "sum", "max": "amax", "min": "amin", "prod": "prod"}


class Segments(NamedTuple):
    """The data as (batch * rows, rest), and each row's segment among (batch * (count + 1)); the last one of each batch
    has the rows outside of segments."""

    rows: Tensor
    segment: Tensor
    lengths: Tensor  # (batch, count)
    batch: int
    many: int
    rest: int

    def wide(self, x: Tensor) -> Tensor:
        """Returns for each row its segment's element of ``x``, which is (batch, count, rest or 1). The value for rows
        outside of segments is arbitrary."""
        padded = torch.nn.functional.pad(x, (0, 0, 0, 1))
        return padded.flatten(0, 1)[self.segment]

    def reduced(self, x: Tensor, how: str, initial: float) -> Tensor:
        """Returns (batch, count, rest) for ``x`` of the rows' shape."""
        start = x.new_full((self.batch * (self.many + 1), x.shape[1]), initial)
        index = self.segment[:, None].expand_as(x)
        result = start.scatter_reduce(0, index, x, how, include_self=True)
        return result.reshape(self.batch, self.many + 1, self.rest)[:, : self.many]

    def is_in_one(self) -> Tensor:
        return (self.segment % (self.many + 1) != self.many)[:, None]


def _segments(data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> Segments:
    if lengths is None:
        if offsets is None:
            raise NotImplementedError("the kernel says what is wrong")
        ends = offsets[..., 1:]
        lengths = ends - offsets[..., :-1]
    else:
        ends = lengths.cumsum(-1)
    if lengths.dim() != axis + 1 or data.dim() <= axis or data.shape[:axis] != lengths.shape[:-1]:
        raise NotImplementedError("the kernel says what is wrong")
    rows, count = data.shape[axis], lengths.shape[-1]
    batch, rest = math.prod(data.shape[:axis]), math.prod(data.shape[axis + 1 :])
    places = torch.arange(rows, device=data.device).expand(batch, rows).contiguous()
    segment = torch.searchsorted(ends.reshape(batch, count).contiguous().to(torch.int64), places, right=True)
    if offsets is not None:  # rows before the first offset are in no segment
        segment = torch.where(places < offsets.reshape(batch, count + 1)[:, :1], count, segment)
    segment = segment + torch.arange(batch, device=data.device)[:, None] * (count + 1)
    x = data.reshape(batch * rows, rest)
    return Segments(x, segment.flatten(), lengths.reshape(batch, count), batch, count, rest)


@decomposition("segment_reduce")
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Raises:
    NotImplementedError: the arguments are wrong; the host's kernel then raises the error.
    RuntimeError: lengths are negative or don't add up; raised when results are read.
    """
    if reduce not in EMPTY or indices is not None or not data.is_floating_point():
        raise NotImplementedError("the kernel says what is wrong")
    axis %= max(data.dim(), 1)
    s = _segments(data, lengths, offsets, axis)
    start = EMPTY[reduce] if initial is None else float(initial)
    result = s.reduced(s.rows, ALIKE[reduce], start)
    if reduce == "mean":
        mean = result / s.lengths[..., None].clamp_min(1)
        result = torch.where(s.lengths[..., None] > 0, mean, start if initial is not None else torch.nan)
    if not unsafe and lengths is not None:
        demands = {
            "lengths contains negative value!": (lengths >= 0).all(),
            "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
            "!unsafe.": (lengths.sum(-1) == data.shape[axis]).all(),
        }
        for message, fits in demands.items():
            result = torch.ops.aten._functional_assert_async.msg(fits, message, result)
    return result.reshape(*data.shape[:axis], s.many, *data.shape[axis + 1 :]).to(data.dtype)


@decomposition("_segment_reduce_backward")
def segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Tensor:
    axis %= max(data.dim(), 1)
    s = _segments(data, lengths, offsets, axis)
    x, (dy, y) = s.rows, (s.wide(result.reshape(s.batch, s.many, s.rest)) for result in (grad, output))
    if reduce == "sum":
        slope = dy
    elif reduce == "mean":
        slope = dy / s.wide(s.lengths[..., None].clamp_min(1).to(x.dtype))
    elif reduce == "prod":
        slope = dy * _product_of_others(s, y, 1.0 if initial is None else float(initial))
    else:  # equal extreme elements share the gradient
        chosen = (x == y) | x.isnan()
        ties = s.wide(s.reduced(chosen.to(x.dtype), "sum", 0))
        slope = torch.where(chosen, dy / ties.clamp_min(1), 0)
    return torch.where(s.is_in_one(), slope, 0).reshape(data.shape).to(data.dtype)


def _product_of_others(s: Segments, y: Tensor, initial: float) -> Tensor:
    """Returns for each row the product of the other rows of its segment, also where the row is zero or NaN."""
    x = s.rows
    zero, nan = x == 0, x.isnan()
    ordinary = s.wide(s.reduced(torch.where(zero | nan, 1, x), "prod", initial))
    zeros, nans = (s.wide(s.reduced(mask.to(x.dtype), "sum", 0)) - mask.to(x.dtype) for mask in (zero, nan))
    others = torch.where(nans > 0, torch.nan, torch.where(zeros > 0, 0, ordinary))
    return torch.where(zero | nan, others, y / x)
