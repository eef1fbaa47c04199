"""Interpreted random draws give the same bits as programs for the same seed, and compile nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from tests.ops.opinfo import compute
from torch_pjrt import _C

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool)
Draw = Callable[[torch.Tensor], torch.Tensor]
OF_FLOATS: dict[str, Draw] = {
    "uniform": lambda x: x.uniform_(),
    "uniform between": lambda x: x.uniform_(-2, 5.5),
    "normal": lambda x: x.normal_(),
    "normal with": lambda x: x.normal_(3, 0.5),
    "randn_like": torch.randn_like,
    "rand_like": torch.rand_like,
    "exponential": lambda x: x.exponential_(1.7),
    "cauchy": lambda x: x.cauchy_(1, 2),
    "log_normal": lambda x: x.log_normal_(0.5, 0.7),
    "geometric": lambda x: x.geometric_(0.3),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.3)),
    "mean and std": lambda x: torch.normal(torch.ones_like(x), torch.full_like(x, 0.25)),
    "std": lambda x: torch.normal(2.0, torch.full_like(x, 0.25)),
    "rrelu": lambda x: F.rrelu(x - 1, training=True),
    "poisson": lambda x: torch.poisson(x + 7.5),
    "binomial": lambda x: torch.binomial(x + 30, x + 0.4),
    "gamma": lambda x: torch._standard_gamma(x + 0.7),
    "dirichlet": lambda x: torch._sample_dirichlet(x + 0.7),
}
EXACT = {"uniform", "rand_like", "bernoulli", "poisson", "binomial", "gamma", "dirichlet"}
OF_ANY: dict[str, Draw] = {
    "random_ below": lambda x: x.random_(1 if x.dtype == torch.bool else 100),
    "random_ between": lambda x: x.random_(0, 2) if x.dtype == torch.bool else x.random_(3, 90),
    "random_": lambda x: x.random_(),
    "random_ from": lambda x: x.random_(0 if x.dtype == torch.bool else 3, None),
    "bernoulli_": lambda x: x.bernoulli_(0.4),
    "bernoulli_ of a tensor": lambda x: x.bernoulli_(torch.linspace(0, 1, x.numel(), device=x.device).view(x.shape)),
    "randint": lambda x: torch.randint(0, 2, x.shape, dtype=x.dtype, device=x.device),
    "randperm": lambda x: torch.randperm(x.numel(), device=x.device).to(x.dtype),
}


def drawn(draws: Sequence[Draw], given: Sequence[torch.Tensor], policy: str) -> list[torch.Tensor]:
    """Returns two consecutive results of each draw, all in one graph."""
    before = torch_pjrt.metrics()["graphs_compiled"]
    _C.set_compile_policy(policy)
    torch.manual_seed(3)
    results = [draw(x.clone()) for draw, x in zip(draws, given, strict=True) for _ in range(2)]
    compute(results)
    if policy == "auto":
        assert torch_pjrt.metrics()["graphs_compiled"] == before
    return [result.cpu() for result in results]


@pytest.fixture(autouse=True)
def policy() -> Iterator[None]:
    yield
    _C.set_compile_policy("auto")


# Small and large. The element size decides how many random words make an element, the dtype the last step.
SIZES = [(1,), (7,), (0,), (33, 5), (4, 3, 1001)]
OF_ALL_SIZES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in OF_FLOATS for dtype in FLOATS]
    + [(name, dtype) for name in OF_ANY for dtype in (*FLOATS, *INTEGERS)],
)
@pytest.mark.sampled(6)
def test_interpreted_draws_are_those_of_a_program(name: str, dtype: torch.dtype) -> None:
    given = [torch.zeros(size, device="pjrt", dtype=dtype) for size in (SIZES if dtype in OF_ALL_SIZES else SIZES[-2:])]
    draws = [{**OF_FLOATS, **OF_ANY}[name]] * len(given)
    calls, program = drawn(draws, given, "auto"), drawn(draws, given, "first")
    for ours, theirs in zip(calls, program, strict=True):
        if dtype.is_floating_point and name in OF_FLOATS and name not in EXACT:
            # The kernels' logarithms or sines may differ in their last bit.
            tolerance = {torch.float64: 1e-12, torch.float32: 2e-5}.get(dtype, 1e-2)
            if name == "cauchy":  # its largest values amplify the error of angles near a quarter turn
                ours, theirs = (x.double().sub(1).div(2).atan() for x in (ours, theirs))
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
        else:
            assert torch.equal(ours, theirs)
    for first, second in zip(calls[::2], calls[1::2], strict=True):
        if first.numel() > 100 and not (name == "random_ below" and dtype == torch.bool):
            assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_normals(dtype: torch.dtype) -> None:
    x = torch.zeros(101, device="pjrt", dtype=dtype)
    calls, program = (drawn([torch.randn_like], [x], policy) for policy in ("auto", "first"))
    torch.testing.assert_close(calls, program, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [*FLOATS])
@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.sampled(3)
def test_multinomial(dtype: torch.dtype, replacement: bool) -> None:
    torch.manual_seed(1)
    weights, draws = [], []
    for shape in ((1,), (9,), (16,), (17,), (3, 40), (2, 300), (1, 5000)):
        weight = torch.rand(shape).square()
        weight[..., 1::5] = 0
        samples = 200 if replacement else max(1, int((weight.reshape(-1, shape[-1]) > 0).sum(1).min()) // 2)
        for count in (1, samples):
            weights.append(weight)
            draws.append(partial(torch.multinomial, num_samples=count, replacement=replacement))
    given = [weight.to(dtype).to("pjrt") for weight in weights]
    calls, program = drawn(draws, given, "auto"), drawn(draws, given, "first")
    for i, (ours, theirs) in enumerate(zip(calls, program, strict=True)):
        weight, count = weights[i // 2], draws[i // 2].keywords["num_samples"]
        assert ours.dtype == torch.int64
        assert ours.shape == (*weight.shape[:-1], count)
        assert (weight.gather(-1, ours) > 0).all()
        # Logarithms may differ in their last bit and swap two nearly equal candidates.
        assert (ours != theirs).sum() <= (0 if replacement else 2)


def test_multinomial_of_ever_new_sizes_compiles_nothing() -> None:
    before = torch_pjrt.metrics()["graphs_compiled"]
    for n in range(1, 30):
        w = torch.ones(n, device="pjrt")
        assert 0 <= torch.multinomial(w, 1).item() < n
        assert sorted(torch.multinomial(w, n).tolist()) == list(range(n))
    assert torch_pjrt.metrics()["graphs_compiled"] == before


def test_in_the_order_of_the_tensor() -> None:
    """A draw into transposed memory gives each element the value that a dense one gets."""
    for policy in ("auto", "first"):
        _C.set_compile_policy(policy)
        torch.manual_seed(0)
        dense = torch.empty(5, 7, device="pjrt").uniform_()
        torch.manual_seed(0)
        across = torch.empty(7, 5, device="pjrt").t().uniform_()
        assert torch.equal(dense.cpu(), across.cpu())


@pytest.mark.each_way
@pytest.mark.parametrize("name", ["poisson", "binomial", "gamma", "dirichlet"])
def test_a_seed_decides_whatever_ran_before(name: str) -> None:
    """Counts are contiguous like the CPU's, and drawn in the order of the tensor."""
    draw = OF_FLOATS[name]
    x = torch.zeros(6, 5, device="pjrt")
    torch.manual_seed(3)
    first = draw(x).cpu()
    assert not torch.equal(draw(x).cpu(), first)
    torch.rand(3, device="pjrt").sum().item()
    for given in (x, torch.zeros(5, 6, device="pjrt").t(), torch.zeros(6, 1, device="pjrt").expand(6, 5)):
        torch.manual_seed(3)
        torch.rand(7)  # the CPU's generator must have no influence
        again = draw(given)
        assert again.stride() == draw(given.cpu()).stride()
        assert torch.equal(again.cpu(), first)


def test_a_size_that_is_new_compiles_nothing() -> None:
    torch_pjrt.reset_metrics()
    for n in range(1, 40):
        x = torch.randn(n, device="pjrt")
        torch.poisson(x.abs()).add_(torch._standard_gamma(x.abs())).cpu()
        y = x + torch.rand(n, device="pjrt") + torch.randint(9, (n,), device="pjrt")
        y[torch.randperm(n, device="pjrt")].sum().item()
    assert torch_pjrt.metrics()["graphs_compiled"] == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x: torch.bernoulli(x + 2), "p_in"),
        (lambda x: torch.normal(x, x - 1), "std >= 0"),
        (lambda x: torch.multinomial(x, 1), "sum of probabilities <= 0"),
        (lambda x: torch.multinomial(x - 1, 1), "element < 0"),
        (lambda x: torch.multinomial(x / 0, 2, replacement=True), "infinity or NaN"),
    ],
)
def test_wrong_numbers(wrong: Draw, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        wrong(torch.zeros(3, device="pjrt")).cpu()
