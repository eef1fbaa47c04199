"""Python scalars among a call's operands: interpreted, they have the bits that eager gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.engine.tier.conftest import counts
from torch_pjrt import _C

# Some of them are no float32, or no float64.
NUMBERS = (2, 16777217, (1 << 62) + 1, 0.1, 1e-46, -0.0, 3.4028235677973366e38, 1e300, float("inf"), float("nan"))
CALLS: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "mul": lambda x, n: x * n,
    "add": lambda x, n: x + n,
    "sub": lambda x, n: torch.sub(x, n, alpha=3),
    "rsub": lambda x, n: n - x,
    "div": lambda x, n: x / n,
    "eq": lambda x, n: x == n,
    "lt": lambda x, n: x < n,
    "remainder": lambda x, n: x.remainder(n),
    "copysign": lambda x, n: x.copysign(n),
    "mul_": lambda x, n: x.clone().mul_(n),
    "power of a number": lambda x, n: n**x,
}


@pytest.mark.host_memory
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("call", CALLS)
def test_numbers_are_rounded_as_in_eager(call: str, dtype: torch.dtype) -> None:
    _C.set_compile_policy("never")
    x = torch.tensor([0.0, -1.5, 3.0, 0.1, 16777216.0, 2.0**62, 3.0e38]).repeat(17).to(dtype)  # unlike other graphs
    for number in NUMBERS:
        given, expected = CALLS[call](x.to("pjrt"), number), CALLS[call](x, number)
        if call == "remainder" and x.itemsize > 2:  # its vectorized kernel gives NaN for large quotients
            by_one = CALLS[call](torch.stack([x, x], 1)[:, 0], number)
            expected = torch.where(expected.isnan() & ~by_one.isnan(), by_one, expected)
        torch.testing.assert_close(given.cpu(), expected, rtol=0, atol=0, equal_nan=True)
        numbers = ~expected.isnan()
        assert torch.equal(given.cpu()[numbers].signbit(), expected[numbers].signbit())
    interpreted, compiled = counts()
    assert interpreted >= len(NUMBERS)
    assert compiled == 0
