"""Bessel and Airy functions, orthogonal polynomials and incomplete gamma functions, where they are hard."""

from __future__ import annotations

import pytest
import torch

import torch_pjrt
from tests.ops.opinfo import assert_same

pytestmark = pytest.mark.each_way

OF_ONE = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0", "ndtri",
]  # fmt: skip
POLYNOMIALS = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
    "legendre_polynomial_p",
]  # fmt: skip
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, torch.inf, -torch.inf, torch.nan, 1e-6, 1e-30]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", OF_ONE)
def test_of_one(name: str, dtype: torch.dtype) -> None:
    f = getattr(torch.special, name)
    x = torch.cat([torch.tensor(SPECIAL), torch.linspace(-12, 40, 207), torch.linspace(-2.2, 2.2, 101)]).to(dtype)
    if name == "ndtri":
        x = torch.cat([x[:10], torch.linspace(0, 1, 301, dtype=dtype), torch.logspace(-30, -1, 60, dtype=dtype)])
    tolerance = (1e-4, 1e-5) if dtype == torch.float32 else (1e-10, 1e-12)
    assert_same(f(x.to("pjrt")), f(x), tolerance=tolerance)
    assert_same(f(torch.arange(5).to("pjrt")), f(torch.arange(5)), tolerance=(1e-4, 1e-5))
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name: str) -> None:
    f = getattr(torch.special, name)
    x = torch.cat([torch.tensor(SPECIAL[:8]), torch.linspace(-2, 2, 33)]).double()[:, None]
    n = torch.tensor([-3, -1, 0, 1, 2, 3, 5, 7, 9, 12, 20, 2.7]).double()
    assert_same(f(x.to("pjrt"), n.to("pjrt")), f(x, n), tolerance=(1e-8, 1e-8))
    assert_same(f(x.to("pjrt"), 4), f(x, 4), tolerance=(1e-8, 1e-8))
    assert_same(f(0.3, n.to("pjrt")), f(0.3, n), tolerance=(1e-8, 1e-8))
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma(name: str, dtype: torch.dtype) -> None:
    f = getattr(torch.special, name)
    a = torch.tensor([0.0, 1e-3, 0.3, 1.0, 2.5, 30, 99, 101, 1500, 19000, 21000, 1e6, torch.inf, torch.nan, -1.0])
    factor = torch.tensor([0.0, 0.01, 0.5, 0.9, 0.99, 1.0, 1.001, 1.05, 2.0, 30.0])
    x = a[:, None] * factor
    x = torch.cat([x, torch.tensor([[0.0, 0.1, 1.0, 5.0, 1e5, torch.inf, torch.nan, -2.0]]).expand(len(a), 8)], 1)
    a, x = a[:, None].to(dtype), x.to(dtype)
    expected = f(a, x)
    assert_same(
        f(a.to("pjrt"), x.to("pjrt")), expected, tolerance=(1e-4, 2e-5) if dtype == torch.float32 else (1e-6, 1e-9)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zeta_of_infinite_exponents(dtype: torch.dtype) -> None:
    q = torch.tensor([0.0, 0.5, 1.0, 1.5, 40.0, -0.5, -2.0, -2.5, torch.inf, torch.nan], dtype=dtype)
    s = torch.tensor([[torch.inf], [-torch.inf], [torch.nan], [2.0]], dtype=dtype)
    assert_same(torch.special.zeta(s.to("pjrt"), q.to("pjrt")), torch.special.zeta(s, q), tolerance=(1e-5, 1e-6))


@pytest.mark.compiled
def test_mvlgamma_of_many_terms() -> None:
    """The order, that of a Wishart distribution's matrices, doesn't lengthen the program."""
    x = torch.linspace(300, 310, 5)
    torch.testing.assert_close(torch.mvlgamma(x.to("pjrt"), 512).cpu(), torch.mvlgamma(x, 512), rtol=1e-5, atol=0)
    lines = [len(str(torch_pjrt.to_stablehlo(lambda x, p=p: torch.mvlgamma(x, p), x)).splitlines()) for p in (2, 512)]
    assert lines[0] == lines[1]
