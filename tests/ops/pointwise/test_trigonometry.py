"""Sines, cosines and angles of large float32 tensors are polynomials on XLA:CPU, and right to the last bits."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from scipy import stats

import torch_pjrt

pytestmark = pytest.mark.each_way

FUNCTIONS = {"sin": torch.sin, "cos": torch.cos, "tan": torch.tan}
COUNT = 20_000


def units(x: torch.Tensor) -> torch.Tensor:
    """Returns the distance of a float32 to its neighbour."""
    return torch.nextafter(x.abs(), torch.tensor(torch.inf)) - x.abs()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("largest", [1e-3, 1.0, 10.0, 1e4, 4e6])
def test_values(name: str, largest: float) -> None:
    torch.manual_seed(0)
    x = torch.empty(COUNT).uniform_(-largest, largest)
    multiples = (torch.arange(1, 2001) * (torch.pi / 2)).float()
    if largest >= 1e4:
        x[: len(multiples)] = multiples  # results there are near 0, or near the largest
    actual = FUNCTIONS[name](x.to("pjrt")).cpu()
    expected = FUNCTIONS[name](x.double())
    error = (actual.double() - expected).abs() / units(expected.float()).double()
    assert error.max() < (4 if name == "tan" else 2.5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_too_large_and_what_is_no_number(name: str) -> None:
    x = torch.linspace(-3, 3, COUNT).reshape(10, -1)
    x[3, :7] = torch.tensor([1e9, -3e38, torch.inf, -torch.inf, torch.nan, 0.0, -0.0])
    actual, expected = FUNCTIONS[name](x.to("pjrt")).cpu(), FUNCTIONS[name](x)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    small = x.clone()
    small[3, :4] = 1
    actual = FUNCTIONS[name](small.to("pjrt")).cpu()
    torch.testing.assert_close(actual, FUNCTIONS[name](small), rtol=1e-6, atol=1e-6, equal_nan=True)
    assert torch.equal(actual[3, 5:7].signbit(), FUNCTIONS[name](small)[3, 5:7].signbit())


def test_angles() -> None:
    torch.manual_seed(0)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 1e-30, 1e6, 1e-3])
    y, x = (torch.cat([v.flatten(), torch.randn(COUNT) * 10]) for v in torch.meshgrid(special, special, indexing="ij"))
    actual = torch.atan2(y.to("pjrt"), x.to("pjrt")).cpu()
    torch.testing.assert_close(actual, torch.atan2(y, x), rtol=5e-7, atol=0, equal_nan=True)
    numbers = ~actual.isnan()
    assert torch.equal(actual[numbers].signbit(), torch.atan2(y, x)[numbers].signbit())
    z = torch.complex(x, y)
    torch.testing.assert_close(z.to("pjrt").angle().cpu(), z.angle(), rtol=5e-7, atol=0, equal_nan=True)
    for function in (torch.asin, torch.acos, torch.atan, torch.atanh):
        for values in (torch.linspace(-1, 1, COUNT), special, torch.linspace(-1e4, 1e4, COUNT)):
            actual = function(values.to("pjrt")).cpu()
            torch.testing.assert_close(actual, function(values), rtol=8e-7, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_other_dtypes(dtype: torch.dtype) -> None:
    x = torch.linspace(-90, 90, COUNT).to(dtype)
    for function in FUNCTIONS.values():
        torch.testing.assert_close(function(x.to("pjrt")).cpu(), function(x), check_device=False)


def test_gradients_and_compiled_programs() -> None:
    def network(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * (3 * x).cos()).square().mean()

    x = torch.linspace(-5, 5, COUNT)
    results = []
    for device, function in (("cpu", network), ("pjrt", network), ("cpu", torch.compile(network, backend="pjrt"))):
        leaf = x.clone().to(device).requires_grad_()
        function(leaf).backward()
        results.append(leaf.grad.cpu())
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=1e-4, atol=1e-9)


@pytest.mark.compiled
@pytest.mark.cpu_arithmetic
def test_a_choice_stays_a_choice() -> None:
    """If both branches were computed, the program would be slower than with XLA's own sine."""
    torch.manual_seed(0)
    x = torch.randn(1 << 20).mul(5).to("pjrt")  # in no order, which makes libm's branches slow

    def seconds(function: Callable[[torch.Tensor], torch.Tensor]) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            y = function(x)
            torch_pjrt.sync()
            torch.pjrt.synchronize()
            times.append(time.perf_counter() - start)
            del y
        return min(times[1:])

    large = torch.full((1,), 1e7, device="pjrt")
    assert seconds(torch.sin) < seconds(lambda x: torch.cat([x, large]).sin()) / 2


@pytest.mark.parametrize("shape", [(3,), (100, 200)])
def test_normal_numbers(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    draws = torch.cat([torch.randn(shape, device="pjrt").cpu().flatten() for _ in range(300 if len(shape) == 1 else 1)])
    assert stats.kstest(draws.double().numpy(), "norm").pvalue > 0.001
    halves = draws[: len(draws) // 2 * 2].reshape(2, -1)
    assert abs(torch.corrcoef(halves)[0, 1]) < 0.1  # cosines and sines of the same angles
