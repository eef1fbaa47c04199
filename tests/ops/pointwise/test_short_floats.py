"""Floats of 8 and 16 bits round like PyTorch's, interpreted and compiled."""

from __future__ import annotations

import math

import pytest
import torch

pytestmark = pytest.mark.each_way

DEVICE = "pjrt"
SHORT = [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_a_float64_is_rounded_twice(dtype: torch.dtype) -> None:
    tie = 1 + torch.finfo(dtype).eps / 2
    x = torch.tensor([tie + 2**-40, tie, tie + 2**-20, -tie - 2**-40, 3.0], dtype=torch.float64)
    expected = x.to(dtype).double()
    assert expected[0] == 1
    torch.testing.assert_close(x.to(DEVICE).to(dtype).double().cpu(), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "integers", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool], ids=str
)
def test_integers_are_rounded_to_the_nearest(integers: torch.dtype) -> None:
    x = torch.cat([torch.arange(-(2**15), 2**15), torch.arange(-5, 6).mul(2**55 + 2**30), torch.tensor([2**63 - 1])])
    for y in (x.to(integers), x.to(integers).view(-1, 4).t()):
        torch.testing.assert_close(y.to(DEVICE).bfloat16().cpu(), y.bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("exponent", [0.5, -0.5])
def test_one_half_is_a_root(dtype: torch.dtype, exponent: float) -> None:
    x = torch.tensor([-math.inf, -0.0, 0.0, math.inf, 4, -4, math.nan], dtype=dtype)
    for power in (exponent, 1.5, exponent):  # an exponent that was seen to change is an argument of the program
        torch.testing.assert_close((x.to(DEVICE) ** power).cpu(), x**power, rtol=0, atol=0, equal_nan=True)
        assert torch.equal((x.to(DEVICE) ** power).cpu().signbit()[1:4], (x**power).signbit()[1:4])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_formulas_are_rounded_in_steps(dtype: torch.dtype) -> None:
    u = torch.linspace(0, 1, 64).to(dtype)
    for eps in (None, 1e-6, 1e-3, 0.1):
        got = torch.logit(u.to(DEVICE), eps=eps).cpu()
        torch.testing.assert_close(got, torch.logit(u, eps=eps), rtol=0, atol=0, equal_nan=True)
    x = torch.linspace(-20, 20, 64).to(dtype)
    y = torch.tensor([1.0, -1.0] * 32, dtype=dtype)
    for reduction in ("none", "mean", "sum"):
        expected = torch.nn.functional.soft_margin_loss(x, y, reduction=reduction)
        got = torch.nn.functional.soft_margin_loss(x.to(DEVICE), y.to(DEVICE), reduction=reduction).cpu()
        torch.testing.assert_close(got, expected, rtol=0 if reduction == "none" else 1e-2, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("exponents", [torch.float16, torch.float32, torch.int32], ids=str)
def test_the_power_of_ldexp_has_a_dtype_of_its_own(dtype: torch.dtype, exponents: torch.dtype) -> None:
    """The power has the dtype of floating exponents (2 to the 20th is infinite in float16), unlike of integers."""
    x = torch.tensor([0, 1e-3, 1, math.inf, 3, 0, 2**-14, 2**15], dtype=dtype)
    y = torch.tensor([20, 20, 200, -30, -17, 1000, 29, -29], dtype=exponents)
    got = torch.ldexp(x.to(DEVICE), y.to(DEVICE)).cpu()
    torch.testing.assert_close(got, torch.ldexp(x, y), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_mean_is_of_a_rounded_sum(dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 7, 64).to(dtype)
    index = torch.arange(64) % 7
    start = torch.ones(7, dtype=dtype)
    expected = start.scatter_reduce(0, index, x, "mean")
    got = start.to(DEVICE).scatter_reduce(0, index.to(DEVICE), x.to(DEVICE), "mean").cpu()
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_the_zero_that_is_taken(dtype: torch.dtype) -> None:
    x, y = torch.tensor([0.0, -0.0] * 32, dtype=dtype), torch.tensor([-0.0, 0.0] * 32, dtype=dtype)
    a, b = x.to(DEVICE), y.to(DEVICE)
    assert torch.equal(torch.clamp(a, min=b).cpu().signbit(), torch.clamp(x, min=y).signbit())
    assert torch.equal(torch.clamp(a, b, b).cpu().signbit(), torch.clamp(x, y, y).signbit())
    assert torch.equal(torch.fmax(a, b).cpu().signbit(), torch.fmax(x, y).signbit())
    assert torch.equal(torch.fmin(a, b).cpu().signbit(), torch.fmin(x, y).signbit())
