"""Ops with a PyTorch kernel wait for no compile. tests/ops/test_opinfo.py also tests each op's usual dtype."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import distributions as d
from torch.distributions import Distribution

import torch_pjrt
from tests.ops.opinfo import (
    OPS,
    UNSUPPORTED,
    assert_same,
    compute,
    may_call_kernels,
    on_device,
    on_the_cpu,
    predictable,
    samples,
)

pytestmark = pytest.mark.skipif(not may_call_kernels(), reason="PyTorch's kernels aren't called here")

Make = Callable[[torch.Tensor, torch.Tensor], Distribution]
# Distributions with the parameters (0.3, 0.6) and (1.5, 2.5), which require gradients.
MADE: dict[str, Make] = {
    "Bernoulli": lambda p, x: d.Bernoulli(p),
    "Beta": lambda p, x: d.Beta(p, x),
    "Binomial": lambda p, x: d.Binomial(50, p),
    "Categorical": lambda p, x: d.Categorical(p),
    "Cauchy": lambda p, x: d.Cauchy(p, x),
    "Chi2": lambda p, x: d.Chi2(x),
    "ContinuousBernoulli": lambda p, x: d.ContinuousBernoulli(p),
    "Dirichlet": lambda p, x: d.Dirichlet(x),
    "Exponential": lambda p, x: d.Exponential(x),
    "FisherSnedecor": lambda p, x: d.FisherSnedecor(x + 2, x + 3),
    "Gamma": lambda p, x: d.Gamma(p, x),
    "Geometric": lambda p, x: d.Geometric(p),
    "Gumbel": lambda p, x: d.Gumbel(p, x),
    "HalfCauchy": lambda p, x: d.HalfCauchy(x),
    "HalfNormal": lambda p, x: d.HalfNormal(x),
    "Independent": lambda p, x: d.Independent(d.Normal(p, x), 1),
    "InverseGamma": lambda p, x: d.InverseGamma(x, p),
    "Kumaraswamy": lambda p, x: d.Kumaraswamy(p, x),
    "LKJCholesky": lambda p, x: d.LKJCholesky(3, x[0]),
    "Laplace": lambda p, x: d.Laplace(p, x),
    "LogNormal": lambda p, x: d.LogNormal(p, x),
    "LogisticNormal": lambda p, x: d.LogisticNormal(p, x),
    "LowRankMultivariateNormal": lambda p, x: d.LowRankMultivariateNormal(p, p[:, None], x),
    "MixtureSameFamily": lambda p, x: d.MixtureSameFamily(d.Categorical(p), d.Normal(p, x)),
    "Multinomial": lambda p, x: d.Multinomial(5, p),
    "MultivariateNormal": lambda p, x: d.MultivariateNormal(p, torch.diag(x)),
    "NegativeBinomial": lambda p, x: d.NegativeBinomial(x, p),
    "Normal": lambda p, x: d.Normal(p, x),
    "OneHotCategorical": lambda p, x: d.OneHotCategorical(p),
    "OneHotCategoricalStraightThrough": lambda p, x: d.OneHotCategoricalStraightThrough(p),
    "Pareto": lambda p, x: d.Pareto(p, x),
    "Poisson": lambda p, x: d.Poisson(x * 10),
    "RelaxedBernoulli": lambda p, x: d.RelaxedBernoulli(x, p),
    "RelaxedOneHotCategorical": lambda p, x: d.RelaxedOneHotCategorical(x[0], p),
    "StudentT": lambda p, x: d.StudentT(x),
    "TransformedDistribution": lambda p, x: d.TransformedDistribution(d.Normal(p, x), [d.ExpTransform()]),
    "Uniform": lambda p, x: d.Uniform(p, x),
    "VonMises": lambda p, x: d.VonMises(p, x),
    "Weibull": lambda p, x: d.Weibull(p, x),
    "Wishart": lambda p, x: d.Wishart(x[1] + 2, torch.diag(x)),
}


def made(name: str, device: str) -> tuple[Distribution, list[torch.Tensor]]:
    leaves = [torch.tensor(pair, device=device, requires_grad=True) for pair in ((0.3, 0.6), (1.5, 2.5))]
    return MADE[name](*leaves), leaves


def entropy(of: Distribution) -> torch.Tensor | None:
    try:
        return of.entropy()
    except NotImplementedError:
        return None


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@pytest.mark.parametrize("name", [name for name in OPS if name not in UNSUPPORTED])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.sampled(4)
def test_integers_and_bools(name: str, dtype: torch.dtype) -> None:
    op = OPS[name]
    for sample in samples(op, dtype, 1) if op.supports_dtype(dtype, "cpu") else ():
        moved = on_device(sample, name)
        result = op.op(moved.input, *moved.args, **moved.kwargs)
        compute(result)
        expected = on_the_cpu(op)(sample.input, *sample.args, **sample.kwargs)
        assert_same(result, expected, values=predictable(op, sample))
    assert torch_pjrt.metrics()["graphs_compiled"] == 0


@pytest.mark.parametrize("name", MADE)
def test_distributions(name: str) -> None:
    """Their densities, entropies and gradients don't wait either, and equal the CPU's."""
    ours, leaves = made(name, "pjrt")
    value = ours.sample()
    drawn = ours.rsample() if ours.has_rsample else value
    assert drawn.shape == value.shape
    if drawn.requires_grad:
        drawn.sum().backward()
        assert all(leaf.grad.isfinite().all() for leaf in leaves if leaf.grad is not None)
    results = []
    for device in ("pjrt", "cpu"):
        of, leaves = made(name, device)
        results.append([of.log_prob(value.to(device)), entropy(of)])
        for result in results[-1][:]:
            if result is not None and result.requires_grad:
                results[-1] += torch.autograd.grad(result.sum(), leaves, retain_graph=True, allow_unused=True)
    assert_same(*results)
    assert torch_pjrt.metrics()["graphs_compiled"] == 0
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
