"""The methods of torch.distributions as ops: draws, log-probabilities and entropies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import distributions
from torch.distributions import constraints, transform_to

# The parameters that each distribution is made of, where it takes one of several.
PARAMETERS = {
    "Bernoulli": "probs", "Beta": "concentration1 concentration0", "Binomial": "total_count probs",
    "Categorical": "probs", "Cauchy": "loc scale", "Chi2": "df", "ContinuousBernoulli": "probs",
    "Dirichlet": "concentration", "Exponential": "rate", "FisherSnedecor": "df1 df2", "Gamma": "concentration rate",
    "Geometric": "probs", "Gumbel": "loc scale", "HalfCauchy": "scale", "HalfNormal": "scale",
    "InverseGamma": "concentration rate", "Kumaraswamy": "concentration1 concentration0", "Laplace": "loc scale",
    "LogisticNormal": "loc scale", "LogNormal": "loc scale",
    "LowRankMultivariateNormal": "loc cov_factor cov_diag", "Multinomial": "total_count probs",
    "MultivariateNormal": "loc scale_tril", "NegativeBinomial": "total_count probs", "Normal": "loc scale",
    "OneHotCategorical": "probs", "Pareto": "scale alpha", "Poisson": "rate", "RelaxedBernoulli": "temperature probs",
    "RelaxedOneHotCategorical": "temperature probs", "StudentT": "df loc scale", "Uniform": "low high",
    "VonMises": "loc concentration", "Weibull": "scale concentration", "Wishart": "df scale_tril",
}  # fmt: skip
PLAIN = dict.fromkeys(("total_count", "low", "high", "temperature", "df"))  # their values are chosen here
METHODS = ("sample", "log_prob", "entropy")
EVENT = 4  # elements along each dimension of an event


@dataclass(frozen=True)
class Method:
    """One method of a distribution, with what an entry of OpInfo has."""

    kind: str
    method: str
    supports_autograd = True

    def supports_dtype(self, dtype: torch.dtype, _: str) -> bool:
        return dtype == torch.float32

    def supported_backward_dtypes(self, _: str) -> set[torch.dtype]:
        return {torch.float32}

    def distribution(self, parameters: dict[str, Any]) -> distributions.Distribution:
        made: distributions.Distribution = getattr(distributions, self.kind)(**parameters)
        return made

    def op(self, parameters: dict[str, Any], value: torch.Tensor | None) -> Any:
        made = self.distribution(parameters)
        if self.method == "sample":
            return made.rsample() if made.has_rsample else made.sample()
        return made.log_prob(value) if self.method == "log_prob" else made.entropy()

    def sample(self, size: int) -> tuple[Any, Any, Any]:
        """Returns arguments of op() whose largest tensor has about ``size`` elements."""
        names = PARAMETERS[self.kind].split()
        found = getattr(distributions, self.kind).arg_constraints
        # Uniform and Wishart have constraints only once they are made.
        of = {**(found if isinstance(found, dict) else {"scale_tril": constraints.lower_cholesky}), **PLAIN}
        dims = {name: 0 if name in PLAIN else of[name].event_dim for name in names}
        batch = max(1, size // EVENT ** max(dims.values()))
        parameters: dict[str, Any] = {}
        for name in names:
            drawn = torch.randn(batch, *[EVENT] * dims[name]) / 4
            if name == "total_count":
                parameters[name] = 10
            elif name in ("low", "high"):
                parameters[name] = drawn.sigmoid() + (name == "high")
            elif name == "df":
                parameters[name] = drawn.exp() + EVENT
            elif name == "temperature":
                parameters[name] = torch.tensor(0.5)
            else:
                parameters[name] = transform_to(of[name])(drawn)
        value = self.distribution(parameters).sample() if self.method == "log_prob" else None
        for given in parameters.values():
            if isinstance(given, torch.Tensor):
                given.requires_grad_()
        return parameters, (value,), {}


def listed() -> dict[str, Method]:
    """Returns all methods that have a formula, by name."""
    found = {}
    for kind in PARAMETERS:
        if not hasattr(distributions, kind):
            continue
        for method in METHODS:
            one = Method(kind, method)
            try:
                parameters, args, _ = one.sample(1)
                one.op(parameters, *args)
            except NotImplementedError:
                continue
            found[f"distributions.{kind}.{method}"] = one
    return found
