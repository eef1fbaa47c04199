"""JAX functions through from_jax against JAX itself: values, gradients, and gradients of a batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import pytest
import torch
from jax import lax

from torch_pjrt.jax import from_jax

RNG = np.random.RandomState(0)
X, POSITIVE, SQUARE = (RNG.randn(4, 3), RNG.rand(4, 3) + 0.5, RNG.randn(3, 3) + 3 * np.eye(3))
SPD = SQUARE @ SQUARE.T + np.eye(3)
FUNCTIONS = {
    "tanh": (jnp.tanh, X),
    "softmax": (jax.nn.softmax, X),
    "gelu": (jax.nn.gelu, X),
    "logsumexp": (jsp.special.logsumexp, X),
    "gammaln": (jsp.special.gammaln, POSITIVE),
    "erfinv": (lambda x: jsp.special.erfinv(x / 4), X),
    "betainc": (lambda x: jsp.special.betainc(1.5, 2.5, x / 2), POSITIVE),
    "norm.logpdf": (jsp.stats.norm.logpdf, X),
    "sort": (jnp.sort, X),
    "top_k": (lambda x: lax.top_k(x, 2)[0], X),
    "cumsum": (lambda x: jnp.cumsum(x, 0), X),
    "var": (lambda x: jnp.var(x, 1), X),
    "median": (jnp.median, X),
    "where": (lambda x: jnp.where(x > 0, x, jnp.exp(x)), X),
    "take": (lambda x: x[jnp.asarray([0, 2, 2])], X),
    "set": (lambda x: x.at[1].multiply(3.0).at[0].set(2.0), X),
    "set one": (lambda x: x.at[1, 2].set(x[0, 0]).at[2, 1].add(x.sum()), X),  # updates without a dimension
    "einsum": (lambda x: jnp.einsum("ij,kj->ik", x, x), X),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)) ** 2, X),
    "convolve": (lambda x: jnp.convolve(x[:, 0], x[:3, 1]), X),
    "conv": (lambda x: lax.conv(x[None, None], x[None, None, :2, :2], (1, 1), "SAME"), X),
    "max_pool": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID"), X),
    "cholesky": (jnp.linalg.cholesky, SPD),
    "solve": (lambda a: jnp.linalg.solve(a, a[0]), SQUARE),
    "scan": (lambda x: lax.scan(lambda c, row: (jnp.sin(c) + row, c * row), x[0], x)[1], X),
    "associative_scan": (lambda x: lax.associative_scan(jnp.multiply, x), X),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), X),
    "map": (lambda x: lax.map(jnp.prod, x), X),
    "custom_jvp": (jax.nn.relu, X),
    "random": (lambda x: x * jax.random.uniform(jax.random.key(0), x.shape), X),
}  # fmt: skip


def total(y):
    return (y * (1 + jnp.arange(y.size, dtype=y.dtype).reshape(y.shape))).sum()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sampled(4)
def test_function(name):
    fn, value = FUNCTIONS[name]
    x = value.astype("float32")
    batch = np.stack([x, 1.25 * x])
    y, gradient = jax.jit(lambda x: (fn(x), jax.grad(lambda x: total(fn(x)))(x)))(x)
    of_batch = jax.jit(jax.vmap(jax.grad(lambda x: total(fn(x)))))(batch)
    t = torch.tensor(x, requires_grad=True)
    got = from_jax(fn)(t)
    scalar = from_jax(lambda x: total(fn(x)))
    (moved,) = torch.autograd.grad(scalar(t), t)
    batched = torch.func.vmap(torch.func.grad(scalar))(torch.tensor(batch))
    for a, b in ((got.detach(), y), (moved, gradient), (batched, of_batch)):
        assert a.shape == b.shape
        np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_around_a_function(use_reentrant):
    x = torch.tensor([0.5, -1.0], requires_grad=True)
    function = from_jax(lambda x: jnp.sin(x) * x)
    torch.utils.checkpoint.checkpoint(function, x, use_reentrant=use_reentrant).sum().backward()
    torch.testing.assert_close(x.grad, (x.cos() * x + x.sin()).detach())
