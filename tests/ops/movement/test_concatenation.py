"""What is put together keeps its bits: bfloat16 goes as integers where XLA:CPU compiles it."""

from __future__ import annotations

import pytest
import torch

DEVICE = "pjrt"

pytestmark = pytest.mark.each_way


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_number_of_16_bits(dtype: torch.dtype) -> None:
    """NaN is another NaN at most."""
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype).reshape(256, 256)
    y = x.flip(0)
    for join in (
        lambda a, b: torch.cat([a, b], 1),
        lambda a, b: torch.cat([a[:3], b, a]),
        lambda a, b: torch.stack([a, b], -1),
    ):
        actual, expected = join(x.to(DEVICE), y.to(DEVICE)).cpu(), join(x, y)
        assert actual.dtype == dtype
        is_number = ~expected.isnan()
        assert torch.equal(actual.isnan(), ~is_number)
        assert torch.equal(actual.view(torch.int16)[is_number], expected.view(torch.int16)[is_number])


def test_with_others_dtypes_and_nothing() -> None:
    x, y = torch.randn(3, 2).bfloat16(), torch.randn(3, 4)
    empty = torch.empty(0)
    for parts in ([x, y], [empty, x], [empty.bfloat16(), x, x[:, :0], x], [x]):
        actual = torch.cat([part.to(DEVICE) for part in parts], 1)
        expected = torch.cat(parts, 1)
        assert actual.dtype == expected.dtype
        assert torch.equal(actual.cpu(), expected)
