"""Fractional pools, whose windows are at given random places."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import torch_pjrt

pytestmark = pytest.mark.each_way


def pool(dims: int) -> tuple[Callable[..., torch.Tensor], torch.Tensor]:
    return getattr(functional, f"fractional_max_pool{dims}d"), torch.rand(2, 3, *[6] * dims)


@pytest.mark.parametrize("dims", [2, 3])
def test_more_samples_than_images(dims: int) -> None:
    torch.manual_seed(0)
    torch_pjrt.reset_metrics()
    op, x = pool(dims)
    samples = torch.rand(4, 3, dims)
    expected = op(x, 2, output_size=3, _random_samples=samples)
    actual = op(x.to("pjrt"), 2, output_size=3, _random_samples=samples.to("pjrt"))
    assert torch.equal(actual.cpu(), expected)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("dims", [2, 3])
def test_samples_of_wrong_sizes(dims: int) -> None:
    op, x = pool(dims)
    for sizes in ((0, 3, dims), (1, 3, dims), (2, 1, dims), (2, 3, dims - 1), (3, dims)):
        samples = torch.rand(sizes)
        with pytest.raises(RuntimeError) as expected:
            op(x, 2, output_size=3, _random_samples=samples)
        with pytest.raises(RuntimeError) as actual:
            op(x.to("pjrt"), 2, output_size=3, _random_samples=samples.to("pjrt")).cpu()
        assert str(expected.value).split("(Could")[0].strip() in str(actual.value)
