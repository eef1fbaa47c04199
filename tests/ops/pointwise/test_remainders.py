"""Remainders of large float32 tensors, in float64 on XLA:CPU, are exact; log1p is right to the last bits."""

from __future__ import annotations

import math

import pytest
import torch

pytestmark = pytest.mark.each_way

COUNT = 20_000
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.3, -7.5, 1e9, -1e30, 3e30, torch.inf, -torch.inf, torch.nan])


def pairs(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    if kind == "near":
        return torch.randn(COUNT) * 100, torch.randn(COUNT)
    if kind == "multiples":
        b = torch.rand(COUNT) + 0.01
        return b * torch.randint(-1000, 1000, (COUNT,)), b
    if kind == "far":
        return torch.randn(COUNT) * 1e5, torch.randn(COUNT).abs() * 1e-2 + 1e-3
    a, b = (x.flatten() for x in torch.meshgrid(SPECIAL, SPECIAL, indexing="ij"))
    filler = torch.randn(COUNT)
    return torch.cat([a, filler]), torch.cat([b, filler.roll(1)])


@pytest.mark.parametrize("kind", ["near", "multiples", "far", "special"])
@pytest.mark.parametrize("name", ["fmod", "remainder", pytest.param("floor_divide", marks=pytest.mark.cpu_arithmetic)])
def test_remainders(name: str, kind: str) -> None:
    a, b = pairs(kind)
    function = getattr(torch, name)
    actual, expected = function(a.to("pjrt"), b.to("pjrt")).cpu(), function(a, b)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    numbers = ~expected.isnan()
    assert torch.equal(actual[numbers].signbit(), expected[numbers].signbit())


@pytest.mark.parametrize("count", [1, 17, COUNT])
def test_a_quotient_beyond_float32_has_its_remainder(count: int) -> None:
    """The CPU's vectorized kernel gives NaN, and its scalar kernel C's remainder."""
    for a, b in ((1e10, 1e-30), (-1e10, 1e-30), (1e38, 3e-30), (3.4e38, -7e-35)):
        x, y = torch.full((count,), a), torch.full((count,), b)
        for name in ("fmod", "remainder"):
            function = getattr(torch, name)
            exact = function(x.double(), y.double()).float()
            assert torch.equal(function(x.to("pjrt"), y.to("pjrt")).cpu(), exact)
            assert torch.equal(function(x.to("pjrt"), b).cpu(), exact)
            assert torch.equal(getattr(x.to("pjrt"), f"{name}_")(y.to("pjrt")).cpu(), exact)


def test_a_quotient_beyond_float64_has_its_remainder() -> None:
    for a, b in ((1e308, 1e-300), (-1.7e308, 3e-300), (1e300, -3e-20), (1e308, 1e-5), (1e308, 1e308), (3e-300, 1e300)):
        x, y = (torch.full((17,), number, dtype=torch.float64, device="pjrt") for number in (a, b))
        assert torch.fmod(x, y).tolist() == [math.fmod(a, b)] * 17
        assert torch.remainder(x, y).tolist() == [a % b] * 17


@pytest.mark.parametrize("divisor", [1.0, -0.7, 2 * torch.pi, 3])
def test_remainders_of_numbers(divisor: float) -> None:
    a = torch.linspace(-50, 50, COUNT)
    torch.testing.assert_close((a.to("pjrt") % divisor).cpu(), a % divisor, rtol=0, atol=0)
    leaf = a.to("pjrt").requires_grad_()
    (leaf % divisor).sum().backward()
    assert leaf.grad.eq(1).all()


def test_log1p() -> None:
    torch.manual_seed(0)
    for x in (torch.randn(COUNT) * 1e-4, -torch.rand(COUNT), torch.rand(COUNT) * 1e6, torch.logspace(-30, 30, COUNT)):
        expected = torch.log1p(x.double())
        actual = torch.log1p(x.to("pjrt")).cpu().double()
        assert ((actual - expected).abs() / expected.abs()).max() < 3e-7
    x = torch.tensor([0.0, -0.0, -1.0, -2.0, torch.inf, -torch.inf, torch.nan, 3e38, 1e-30])
    actual = torch.log1p(x.to("pjrt")).cpu()
    torch.testing.assert_close(actual, torch.log1p(x), rtol=3e-7, atol=0, equal_nan=True)
    assert actual[1].signbit()
