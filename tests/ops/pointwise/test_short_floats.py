"""Floats of 8 and 16 bits are what PyTorch makes of them, by calls and compiled."""

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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("exponent", [0.5, -0.5])
def test_one_half_is_a_root(dtype: torch.dtype, exponent: float) -> None:
    x = torch.tensor([-math.inf, -0.0, 0.0, math.inf, 4, -4, math.nan], dtype=dtype)
    for power in (exponent, 1.5, exponent):  # an exponent that was seen to change is an argument of the program
        torch.testing.assert_close((x.to(DEVICE) ** power).cpu(), x**power, rtol=0, atol=0, equal_nan=True)
        assert torch.equal((x.to(DEVICE) ** power).cpu().signbit()[1:4], (x**power).signbit()[1:4])
