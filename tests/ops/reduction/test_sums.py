"""Sums of many floats, which are computed in parts on XLA:CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.ops.opinfo import compute

pytestmark = pytest.mark.each_way

DEVICE = "pjrt"


@pytest.mark.parametrize(
    "size",
    [
        (1024,),
        (1025,),
        (20_001,),
        (9973,),
        (7, 1026),
        (3, 5003),
        (999, 999),
        (65, 3, 67),
        (130, 9),
        (8, 4, 24, 16),
        (6, 3, 20, 12),
        (1, 3, 32, 33),
        (4096, 0),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int32, torch.int64]
)
@pytest.mark.sampled(3)
def test_of_any_size(size: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (torch.randn(size) * 10).to(dtype)
    y = x.to(DEVICE)
    sums, variances = [], []
    for dims in ((), (-1,), (0, -1), tuple(range(len(size)))[::-1], (0, *range(2, len(size))), (0,)):
        dims = tuple(dict.fromkeys(d % len(size) for d in dims))
        sums.append((y.sum(dims), x.sum(dims)))
        if dtype.is_floating_point and x.numel():
            variances.append((y.double().var(dims), x.double().var(dims)))
    compute([sums, variances])
    for there, here in sums:
        torch.testing.assert_close(there.cpu(), here, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-3)
    for there, here in variances:
        torch.testing.assert_close(there.cpu(), here, equal_nan=True)


@pytest.mark.parametrize("n", [1, 1023, 1024, 1031, 4096, 16_385])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.int64])
@pytest.mark.sampled(2)
def test_of_a_line(n: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, z = ((torch.randn(n) * 3).to(dtype) for _ in range(2))
    y, w = x.to(DEVICE), z.to(DEVICE)
    rtol = 1e-2 if dtype == torch.bfloat16 else 1e-5
    for function in (torch.dot, torch.vdot):
        torch.testing.assert_close(function(y, w).cpu(), function(x, z), rtol=rtol, atol=2e-2)
    near_one, near_one_there = (torch.exp(t.double().real / 99) if dtype != torch.int64 else t % 3 for t in (x, y))
    torch.testing.assert_close(near_one_there.prod().cpu(), near_one.prod(), rtol=1e-4, atol=1e-3)
    if not dtype.is_complex:
        assert torch.equal(torch.stack(y.aminmax()).cpu(), torch.stack(x.aminmax()))


@pytest.mark.parametrize("size", [(130, 100), (70, 9000), (20_000,)], ids=str)
@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf, -0.0])
def test_special_numbers_wherever_they_are(size: tuple[int, ...], special: float) -> None:
    for place in (0, 7, -1):
        x = torch.full(size, -0.0)
        x.view(-1)[place] = special
        y = x.to(DEVICE)
        for function in (torch.sum, torch.prod, torch.amax, torch.amin, torch.nansum, lambda t: t.sum(-1)):
            there, here = function(y).cpu(), function(x)
            torch.testing.assert_close(there, here, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("size", [(20_001,), (130, 100), (9, 2048), (2, 5, 999)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_long_formulas(size: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, t = torch.randn(size).to(dtype) * 30, (torch.rand(size) > 0.5).to(dtype)
    for special in (None, torch.inf, torch.nan):
        if special is not None:
            x.view(-1)[-1] = special
        for reduction in ("sum", "mean"):
            here, there = (
                F.binary_cross_entropy_with_logits(x.to(device), t.to(device), reduction=reduction)
                for device in ("cpu", DEVICE)
            )
            rtol = 2e-2 if dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(there.cpu(), here, rtol=rtol, atol=0, equal_nan=True)


@pytest.mark.compiled
@pytest.mark.cpu_arithmetic
def test_sums_of_all_elements_are_products(programs: list[str]) -> None:
    """XLA:CPU does not vectorize a reduction of a long formula, which takes five times as long."""
    for size in ((20_001,), (9000,), (130, 100), (3, 8192), (8, 12, 128)):
        x = torch.ones(size, device=DEVICE)
        F.binary_cross_entropy_with_logits(x, x).cpu()
    sums = [text for text in programs if "exponential" in text]
    assert len(sums) == 5
    assert all("stablehlo.dot_general" in text for text in sums)


@pytest.mark.compiled
@pytest.mark.cpu_arithmetic
def test_parts_only_where_they_pay(programs: list[str]) -> None:
    for size, dims in (
        ((32, 64), (0, 1)),
        ((2, 5, 32, 32), (0, 2, 3)),
        ((4, 2048), (1,)),
        ((2048, 32), (0,)),
        ((2048, 3), (0,)),
        ((512, 32), (1,)),
    ):
        torch.ones(size, device=DEVICE).mul(torch.ones(size).to(DEVICE)).sum(dims).cpu()
    in_parts = [text.count("stablehlo.slice") > 0 for text in programs if "stablehlo.reduce" in text]
    assert in_parts == [True, True, True, True, False, False]
