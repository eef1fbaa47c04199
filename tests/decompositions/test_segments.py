"""Reductions of segments: nothing to reduce, no segments, and more segments than rows."""

from __future__ import annotations

import pytest
import torch

import torch_pjrt
from tests.ops.opinfo import assert_same

WAYS = ("sum", "mean", "max", "min", "prod")
SHAPES = {
    "no rows": ((0,), [0, 0], 0),
    "rows of nothing": ((3, 0), [1, 2], 0),
    "no batch": ((0, 3), torch.ones(0, 2), 1),
    "no segments": ((2, 3), torch.ones(2, 0), 1),
    "empty batch and rows": ((2, 0, 3), [[0], [0]], 1),
}


def results(shape: tuple[int, ...], lengths: object, axis: int, device: str) -> list[torch.Tensor]:
    """Returns values and gradients for all reductions, by lengths and by offsets."""
    counts = torch.as_tensor(lengths, dtype=torch.int64)
    ends = torch.nn.functional.pad(counts.cumsum(-1), (1, 0)).to(device)
    found = []
    for by in ({"lengths": counts.to(device)}, {"offsets": ends}):
        for way in WAYS:
            x = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
            y = torch.segment_reduce(x, way, axis=axis, initial=2, unsafe=True, **by)
            y.square().sum().backward()
            assert x.grad is not None
            found += [y.detach(), x.grad]
    return found


@pytest.mark.each_way
@pytest.mark.parametrize("name", SHAPES)
def test_nothing(name: str) -> None:
    shape, lengths, axis = SHAPES[name]
    torch_pjrt.reset_metrics()
    assert_same(results(shape, lengths, axis, "pjrt"), results(shape, lengths, axis, "cpu"), strides=True)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.compiled
def test_more_segments_than_rows() -> None:
    """PyTorch's kernel reads and writes as many rows as the lengths say; whether it takes a call is asked with lengths
    that fit."""
    y, lengths = torch.arange(0.0, 6400).reshape(200, 32), torch.zeros(200, dtype=torch.int64)
    lengths[7] = 2

    def gradient(device: str, rows: int) -> torch.Tensor:
        x, of = torch.ones(rows, 32, device=device), lengths.clamp_max(rows).to(device)
        return torch.ops.aten._segment_reduce_backward(y.to(device), y.to(device), x, "sum", lengths=of)

    assert_same(gradient("pjrt", 2), gradient("cpu", 2))
    assert_same(gradient("pjrt", 0), gradient("cpu", 0))
