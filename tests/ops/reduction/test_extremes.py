"""Largest and smallest elements of rows, which are computed by halves, and ops made of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torch_pjrt
from tests.ops.opinfo import compute

pytestmark = pytest.mark.each_way

DEVICE = "pjrt"
SIZES = [(1,), (3, 8), (3, 9), (2, 17), (5, 125), (2, 3, 4, 5), (2, 1000), (1, 5000), (4, 0, 3)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
def test_as_on_the_cpu(size: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (torch.randn(size) * 100).to(dtype)
    y = x.to(DEVICE)
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda t: t.amax(-1),
        lambda t: t.amin(-1, keepdim=True),
        lambda t: t.argmax(-1),
        lambda t: t.min(-1).indices,
    ]
    if x.numel():
        functions += [torch.max, torch.min, lambda t: t.amax(tuple(range(t.dim()))), lambda t: t.amax(0)]
    if x.numel() and x.dim() > 1:
        functions += [lambda t: t.amax((0, -1)), lambda t: t.amin((-2, -1))]
    results = [function(y) for function in functions]
    compute(results)
    for function, result in zip(functions, results, strict=True):
        assert torch.equal(result.cpu(), function(x))


@pytest.mark.parametrize("place", [0, 1, 62, 124])
@pytest.mark.parametrize("nan", [float("nan"), -float("nan")])
def test_nan_wherever_it_is(place: int, nan: float) -> None:
    x = torch.randn(2, 125)
    x[0, place] = nan
    y = x.to(DEVICE)
    assert y.amax(-1).isnan().tolist() == y.amin(-1).isnan().tolist() == [True, False]
    assert y.argmax(-1)[0].item() == place
    assert torch.softmax(y, -1).isnan().any(-1).tolist() == [True, False]


def test_infinities() -> None:
    x = torch.full((3, 33), -torch.inf)
    x[1, 32] = 0.0
    x[2, 5] = torch.inf
    for function in (torch.amax, torch.amin, torch.softmax, torch.log_softmax, torch.logsumexp):
        torch.testing.assert_close(function(x.to(DEVICE), -1).cpu(), function(x, -1), equal_nan=True)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax, torch.logsumexp])
@pytest.mark.parametrize("compiled", [False, True])
def test_rows_of_large_products(function: Callable[..., Tensor], compiled: bool) -> None:
    """Rows are masked by -1e10 and scaled afterwards: x * 100 - max must not be a fused multiply-add."""
    torch.manual_seed(0)
    x = -torch.rand(256, 4) * 1e10

    def scaled(t: Tensor) -> Tensor:
        return function(t * 100, -1)

    actual = torch.compile(scaled, backend="pjrt")(x) if compiled else scaled(x.to(DEVICE)).cpu()
    torch.testing.assert_close(actual, scaled(x))


@pytest.mark.compiled
@pytest.mark.parametrize("size", [(1, 1, 64, 8), (2, 3, 33, 16)], ids=str)
def test_attention_of_large_scores(size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    query, key, value = torch.rand(size) * 1e6, -torch.rand(size) * 1e6, torch.rand(size)
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (t.to(DEVICE).requires_grad_() for t in (query, key, value))
    result = attention(q, k, v, scale=0.37)
    torch.testing.assert_close(result.detach().cpu(), attention(query, key, value, scale=0.37))
    grads = torch.autograd.grad(result.sum(), (q, k, v))
    assert all(torch.isfinite(grad).all() for grad in grads)
    # Each query's probabilities add up to 1; the CPU's own gradient is infinite here.
    torch.testing.assert_close(grads[2].sum(-2).cpu(), torch.full((*size[:-2], size[-1]), float(size[-2])))


def test_gelu_far_from_zero() -> None:
    """XLA's erf ends at 1 - 2^-23."""
    x = torch.tensor([-1e30, -1e10, -1e4, -100.0, -10.0, -6.0, -5.0, -3.95, -3.9, -3.0, 3.0, 3.9, 3.95, 6.0, 1e10])
    for function in (torch.nn.functional.gelu, torch.erf, lambda t: torch.nn.functional.gelu(t, approximate="tanh")):
        torch.testing.assert_close(function(x.to(DEVICE)).cpu(), function(x), rtol=2e-5, atol=1e-6)


def test_gradients_of_gelu_far_from_zero() -> None:
    grads = []
    for device in ("cpu", DEVICE):
        x = torch.tensor([-1e10, -100.0, -6.0, -3.95, 3.95, 100.0], device=device, requires_grad=True)
        torch.nn.functional.gelu(x).sum().backward()
        assert x.grad is not None
        grads.append(x.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0], rtol=2e-5, atol=1e-6)


def test_rows_are_halved_on_the_cpu_alone() -> None:
    text = torch_pjrt.to_stablehlo(lambda t: t.amax(-1), torch.ones(4, 1000, device=DEVICE))
    assert text.count("stablehlo.slice") == 0  # the program for any platform
