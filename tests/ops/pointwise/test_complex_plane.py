"""Functions of complex numbers have the CPU's branch cuts, infinite parts and small parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytestmark = pytest.mark.each_way

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    name: getattr(torch, name)
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "exp2", "log", "log10", "sin", "sinc",
        "sinh", "sqrt", "tan", "tanh",
    )
} | {"pow": lambda z: z**0.5}  # fmt: skip


def plane(parts: list[float], dtype: torch.dtype) -> torch.Tensor:
    real, imag = torch.meshgrid(*2 * [torch.tensor(parts, dtype=dtype)], indexing="ij")
    return torch.complex(real, imag)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sides_of_cuts_and_infinite_parts(name: str, dtype: torch.dtype) -> None:
    z = plane([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -3.0, 1e20, torch.inf, -torch.inf], dtype)
    actual, expected = FUNCTIONS[name](z.to("pjrt")).cpu(), FUNCTIONS[name](z)
    numbers = ~expected.isnan()
    assert not actual[numbers].isnan().any()
    actual, expected = actual[numbers], expected[numbers]
    rounding = (actual - expected).abs() <= 1e-5 * expected.abs()  # for a part beside a much larger one
    for a, b in ((actual.real, expected.real), (actual.imag, expected.imag)):
        torch.testing.assert_close(torch.where(rounding, b, a), b, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_small_parts(name: str) -> None:
    z = plane([0.3, 1e-2, -1e-3, 1e-4, 1e-6, 1e-15], torch.float32)
    actual, expected = FUNCTIONS[name](z.to("pjrt")).cpu(), FUNCTIONS[name](z.to(torch.complex128))
    if name == "sinc":  # a quotient, whose parts are as good as its size
        assert ((actual - expected).abs() <= 1e-6 * expected.abs()).all()
        return
    for a, b in ((actual.real, expected.real), (actual.imag, expected.imag)):
        torch.testing.assert_close(a.double(), b, rtol=5e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_powers(dtype: torch.dtype) -> None:
    z = plane([0.0, 0.5, -1.0, 2.0, -3.0, 12.0], dtype).flatten()
    w = plane([-0.0, 0.5, -1.0, 2.0, -7.0, 400.0], dtype).flatten()
    for program in (torch.pow, lambda z, _: 2**z, lambda _, w: (0j) ** w):
        actual, expected = program(z[:, None].to("pjrt"), w.to("pjrt")).cpu(), program(z[:, None], w)
        numbers = ~expected.isnan()  # the CPU's 0j**0j is not, here it is 1 as in Python
        assert not actual[numbers].isnan().any()
        finite = expected.isfinite()
        scale = 1e-4 if dtype == torch.float32 else 1e-12  # angles are large
        error, size = (actual - expected).abs()[finite], expected.abs()[finite]
        assert (error <= scale * size + torch.finfo(dtype).tiny).all()
