"""Gamma, Poisson, binomial and Dirichlet draws have the right moments and distribution, and their gradients are the
CPU's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import torch_pjrt
from tests.ops.opinfo import assert_same

pytestmark = pytest.mark.each_way
COUNT = 40_000


def distance(drawn: torch.Tensor, expected: torch.Tensor) -> float:
    """Returns the Kolmogorov-Smirnov distance of two samples, which is at most about 1 / sqrt(COUNT)."""
    both = torch.cat([drawn, expected]).sort().values
    below = [torch.searchsorted(x.sort().values, both, right=True) / len(x) for x in (drawn, expected)]
    return float((below[0] - below[1]).abs().max())


def check(draw: Callable[[torch.Tensor], torch.Tensor], parameter: torch.Tensor, mean: float, variance: float) -> None:
    torch.manual_seed(1)
    drawn, expected = draw(parameter.to("pjrt")).cpu().double(), draw(parameter).double()
    assert drawn.dtype == expected.dtype
    assert drawn.isfinite().all()
    deviation = math.sqrt(variance / COUNT)
    assert abs(drawn.mean().item() - mean) < 5 * deviation + 1e-6
    assert abs(drawn.var().item() / variance - 1) < 0.12
    assert distance(drawn, expected) < 1.95 * math.sqrt(2 / COUNT)  # one in a thousand is further
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("alpha", [0.1, 0.7, 1.0, 3.5, 200.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gamma(alpha: float, dtype: torch.dtype) -> None:
    check(torch._standard_gamma, torch.full((COUNT,), alpha, dtype=dtype), alpha, alpha)


@pytest.mark.parametrize("rate", [0.05, 1.0, 9.5, 10.0, 37.0, 1e4])
def test_poisson(rate: float) -> None:
    check(torch.poisson, torch.full((COUNT,), rate), rate, rate)


@pytest.mark.parametrize(("count", "chance"), [(1, 0.3), (12, 0.5), (30, 0.9), (50, 0.4), (1000, 0.005), (10_000, 0.7)])
def test_binomial(count: int, chance: float) -> None:
    check(
        lambda p: torch.binomial(torch.full_like(p, count), p),
        torch.full((COUNT,), chance),
        count * chance,
        count * chance * (1 - chance),
    )


def test_dirichlet() -> None:
    alpha = torch.tensor([0.5, 2.0, 7.5])
    for column in range(3):
        share = (alpha[column] / 10).item()
        check(
            lambda a, column=column: torch._sample_dirichlet(a)[:, column],
            alpha.expand(COUNT, 3), share, share * (1 - share) / 11,
        )  # fmt: skip
    assert torch._sample_dirichlet(alpha.expand(100, 3).to("pjrt")).sum(1).cpu().allclose(torch.ones(100))


def test_ends() -> None:
    nan = torch.nan
    alpha = torch.tensor([0.0, -1.0, nan], device="pjrt")
    least = torch.finfo(torch.float32).tiny
    assert_same(torch._standard_gamma(alpha), torch.tensor([least, nan, nan]))
    assert torch.poisson(torch.tensor([0.0], device="pjrt")).tolist() == [0]
    count, chance = torch.tensor([5.0, 5, 0, 5, 7, 7]), torch.tensor([0.0, 1, 0.5, nan, 1.5, -1])
    assert_same(torch.binomial(count.to("pjrt"), chance.to("pjrt")), torch.tensor([0, 5, 0, nan, 7, 0]))
    for f in (torch._standard_gamma, torch.poisson, torch._sample_dirichlet):
        assert f(torch.ones(0, 2, device="pjrt")).shape == (0, 2)


def test_a_negative_rate() -> None:
    with pytest.raises(RuntimeError, match="invalid Poisson rate, expected rate to be non-negative"):
        torch.poisson(torch.tensor([1.0, -1.0], device="pjrt")).cpu()


def test_a_seed_gives_the_same_numbers() -> None:
    rate = torch.linspace(0.1, 30, 50).to("pjrt")

    def drawn() -> list[torch.Tensor]:
        torch.manual_seed(7)
        return [f(rate).cpu() for f in (torch.poisson, torch._standard_gamma)]

    first, second = drawn(), drawn()
    assert all(a.equal(b) for a, b in zip(first, second, strict=True))
    assert not torch.poisson(rate).cpu().equal(first[0])


def test_gradients_of_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    alpha = torch.rand(400, generator=generator) * torch.tensor([0.3, 3, 30, 300]).repeat(100) + 0.01
    drawn = torch._standard_gamma(alpha, generator=generator)
    arguments = (alpha, drawn)
    expected = torch._standard_gamma_grad(*arguments)
    assert_same(torch._standard_gamma_grad(*(x.to("pjrt") for x in arguments)), expected, tolerance=(2e-3, 1e-6))
    total = alpha + alpha.flip(0)
    x = torch.rand(400, generator=generator)
    arguments = (x, alpha, total)
    expected = torch._dirichlet_grad(*arguments)
    assert_same(torch._dirichlet_grad(*(x.to("pjrt") for x in arguments)), expected, tolerance=(5e-3, 1e-5))


def test_through_torch_distributions() -> None:
    concentration = torch.full((1000, 2), 3.0, device="pjrt", requires_grad=True)
    sample = torch.distributions.Dirichlet(concentration).rsample()
    sample[:, 0].sum().backward()
    torch.distributions.Gamma(concentration, 2.0).rsample().sum().backward()
    assert concentration.grad is not None
    assert concentration.grad.isfinite().all()
    assert 0.4 < torch.distributions.Beta(concentration[:, 0], concentration[:, 1]).sample().mean().item() < 0.6
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_uniform_numbers_are_drawn_on_the_device_and_the_same_in_out(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    values = torch.rand(50, 4, dtype=dtype, device="pjrt")
    torch.manual_seed(3)
    out = torch.empty(0, dtype=dtype, device="pjrt")
    torch.rand(50, 4, out=out)
    assert torch.equal(out, values)
    parts = torch.view_as_real(values).cpu()
    assert parts.min() >= 0
    assert parts.max() < 1
    assert (parts[..., 0] != parts[..., 1]).all()
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize(
    "draw",
    [torch.poisson, torch._standard_gamma, torch.bernoulli, lambda x: torch.nn.functional.rrelu(x, training=True)],
    ids=["poisson", "gamma", "bernoulli", "rrelu"],
)
def test_draws_have_the_cpus_layout(draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.rand(2, 3, 4, 5)
    for view in (x[0, 0].t(), x[0].permute(2, 0, 1), x.contiguous(memory_format=torch.channels_last), x[0, 0, :, ::2]):
        assert draw(view.to("pjrt")).stride() == draw(view).stride()
