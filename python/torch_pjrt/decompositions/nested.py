"""Conversions between jagged and padded rows, which nested tensors use."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition


def _one(offsets: Sequence[Tensor]) -> Tensor:
    if len(offsets) != 1:
        raise NotImplementedError("more than one jagged dimension")
    return offsets[0]


def _beside(mask: Tensor, like: Tensor) -> Tensor:
    """Appends dimensions of size 1 to ``mask``, up to the number of ``like``'s."""
    return mask.reshape(*mask.shape, *[1] * (like.dim() - mask.dim()))


@decomposition("_jagged_to_padded_dense_forward")
def jagged_to_padded_dense(
    values: Tensor, offsets: Sequence[Tensor], max_lengths: Sequence[int], padding_value: float = 0.0
) -> Tensor:
    """Returns (batch, max_length, …) for ``values`` (total, …), whose row i begins at ``offsets[0][i]`` of the
    (batch + 1) offsets."""
    begins = _one(offsets)
    place = begins[:-1, None] + torch.arange(max_lengths[0], device=begins.device)
    if values.shape[0] == 0:
        return values.new_full((*place.shape, *values.shape[1:]), padding_value)
    rows = values[place.clamp_max(values.shape[0] - 1)]
    return torch.where(_beside(place < begins[1:, None], rows), rows, padding_value).to(values.dtype)


@decomposition("_padded_dense_to_jagged_forward", meta=True)
def padded_dense_to_jagged(dense: Tensor, offsets: Sequence[Tensor], total_L: int | None = None) -> Tensor:
    """Returns (total_L, …) for ``dense`` (batch, max_length, …): the inverse of ``jagged_to_padded_dense``.

    Raises:
        NotImplementedError: ``total_L`` is not given.
        RuntimeError: it is not the last of the offsets, or a row is longer than max_length; raised when results are
            read.
    """
    begins = _one(offsets)
    if total_L is None:
        raise NotImplementedError("its result's size depends on data; give total_L")
    place = torch.arange(total_L, device=begins.device)
    for holds, message in (
        (begins[-1] == total_L, "final offset should match total_L value"),
        ((begins.diff() <= dense.shape[1]).all(), f"found batch item longer than max length {dense.shape[1]}"),
    ):
        place = torch.ops.aten._functional_assert_async.msg(
            holds, f"_padded_dense_to_jagged_forward(): {message}", place
        )
    row = torch.searchsorted(begins, place, right=True) - 1
    return dense[row, place - begins[row]]
