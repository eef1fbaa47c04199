"""searchsorted and bucketize repeat the CPU's bisection, which shows where a sequence has NaN or isn't sorted."""

from __future__ import annotations

import pytest
import torch

import torch_pjrt

DEVICE = "pjrt"
NAN, INF = float("nan"), float("inf")

pytestmark = pytest.mark.each_way

# A sequence, the values sought, whether from the right, and the results.
WITH_NAN = [
    ([0, 1, 2, NAN], [1, INF, NAN], False, [1, 4, 4]),
    ([0, 1, 2, NAN], [1, 2, NAN], True, [2, 4, 4]),
    ([-INF, 0, INF, NAN, NAN], [INF], True, [5]),
    ([NAN, NAN], [0, NAN], False, [2, 2]),
    ([*range(61), NAN, NAN, NAN], [29, NAN], True, [30, 64]),
    ([*range(30), NAN, NAN, NAN], [29, NAN], True, [33, 33]),
]


@pytest.mark.parametrize(("sequence", "sought", "right", "expected"), WITH_NAN)
def test_nan_is_passed_wherever_the_bisection_meets_it(
    sequence: list[float], sought: list[float], right: bool, expected: list[int]
) -> None:
    for device in ("cpu", DEVICE):
        boundaries, values = (torch.tensor(x, dtype=torch.float32, device=device) for x in (sequence, sought))
        assert torch.searchsorted(boundaries, values, right=right).tolist() == expected
        assert torch.bucketize(values, boundaries, right=right).tolist() == expected
        assert torch.searchsorted(boundaries, sought[0], right=right).item() == expected[0]


@pytest.mark.parametrize("n", [*range(1, 13), 31, 32, 33, 34, 63, 64, 65, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
@pytest.mark.sampled(3)
def test_sequences_of_any_order(n: int, dtype: torch.dtype) -> None:
    """Twenty sequences for each number of elements decide it: they differ in the elements that are passed."""
    sequence = torch.randint(-5, 5, (20, n)).to(dtype)
    sequence[0] = sequence[0].sort().values
    values = torch.randint(-6, 6, (20, 9)).to(dtype)
    if dtype.is_floating_point:
        sequence[torch.rand(20, n) < 0.2] = NAN
        values[:, 0], values[:, 1] = NAN, INF
    for right in (False, True):
        expected = torch.searchsorted(sequence, values, right=right)
        assert torch.searchsorted(sequence.to(DEVICE), values.to(DEVICE), right=right).tolist() == expected.tolist()
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_a_sorter_is_followed_as_it_is() -> None:
    for device in ("cpu", DEVICE):
        sequence, values = torch.tensor([NAN, 2, 0], device=device), torch.tensor([1, 3, NAN], device=device)
        assert torch.searchsorted(sequence, values, sorter=torch.tensor([2, 1, 0], device=device)).tolist() == [1, 3, 3]
