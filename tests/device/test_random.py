"""Random numbers: reproducible, independent of when they are synced, and correctly distributed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt
from tests.warned import warned

DEVICE = "pjrt"

DRAWS: dict[str, Callable[..., torch.Tensor]] = {
    "rand": lambda g=None: torch.rand(7, device=DEVICE, generator=g),
    "randn": lambda g=None: torch.randn(7, device=DEVICE, generator=g),
    "randint": lambda g=None: torch.randint(0, 1000, (7,), device=DEVICE, generator=g),
    "randperm": lambda g=None: torch.randperm(20, device=DEVICE, generator=g),
    "normal_": lambda g=None: torch.empty(7, device=DEVICE).normal_(1, 2, generator=g),
    "uniform_": lambda g=None: torch.empty(7, device=DEVICE).uniform_(-1, 1, generator=g),
    "exponential_": lambda g=None: torch.empty(7, device=DEVICE).exponential_(generator=g),
    "bernoulli": lambda g=None: torch.bernoulli(torch.full((64,), 0.5, device=DEVICE), generator=g),
    "multinomial": lambda g=None: torch.multinomial(torch.ones(30, device=DEVICE), 10, generator=g),
    "random_": lambda g=None: torch.empty(7, dtype=torch.int64, device=DEVICE).random_(1000, generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_seed_decides(name: str) -> None:
    draw = DRAWS[name]
    torch.manual_seed(3)
    first, second = draw().tolist(), draw().tolist()
    torch.manual_seed(3)
    again = draw()
    draw()
    assert first != second
    assert again.tolist() == first
    torch.pjrt.manual_seed(3)
    assert draw().tolist() == first
    torch.manual_seed(4)
    assert draw().tolist() != first


WITHOUT_DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "dropout in evaluation": lambda x: torch.native_dropout(x, 0.5, False)[0],
    "rrelu in evaluation": F.rrelu,
}


@pytest.mark.parametrize("name", WITHOUT_DRAWS)
def test_what_draws_nothing_leaves_the_generators(name: str) -> None:
    layer, x = WITHOUT_DRAWS[name], torch.randn(2, 2, 4, 8)
    before = torch.pjrt.get_rng_state()
    layer(x.to(DEVICE).requires_grad_()).sum().backward()
    assert torch.equal(torch.pjrt.get_rng_state(), before)
    before = torch.get_rng_state()
    torch.compile(layer, backend="pjrt")(x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", DRAWS)
def test_generators(name: str) -> None:
    draw = DRAWS[name]
    g = torch.Generator(device=DEVICE)
    assert g.device.type == DEVICE
    g.manual_seed(5)
    first, second = draw(g).tolist(), draw(g).tolist()
    before = torch.pjrt.get_rng_state()
    g.manual_seed(5)
    assert [draw(g).tolist(), draw(g).tolist()] == [first, second]
    assert torch.equal(torch.pjrt.get_rng_state(), before)  # the default generator is another one
    other = torch.Generator(device=DEVICE)
    other.set_state(g.get_state())
    assert draw(other).tolist() == draw(g).tolist()
    assert g.initial_seed() == 5
    assert g.clone_state().get_state().tolist() == g.get_state().tolist()


def test_a_generator_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'pjrt' device type for generator but found 'cpu'"):
        torch.rand(3, device=DEVICE, generator=torch.Generator())


def test_syncs_change_nothing() -> None:
    torch.manual_seed(0)
    lazy = [torch.rand(4, device=DEVICE) for _ in range(3)]
    torch.manual_seed(0)
    eager = [torch.rand(4, device=DEVICE).tolist() for _ in range(3)]
    assert [t.tolist() for t in reversed(lazy)] == eager[::-1]
    assert len({tuple(e) for e in eager}) == 3


def test_a_value_is_drawn_once() -> None:
    x = torch.rand(4, device=DEVICE)
    y = x + 0
    assert x.tolist() == y.tolist() == x.tolist()


def test_rng_state() -> None:
    state = torch.pjrt.get_rng_state()
    first = torch.rand(4, device=DEVICE).tolist()
    torch.pjrt.set_rng_state(state)
    assert torch.rand(4, device=DEVICE).tolist() == first
    with pytest.raises(RuntimeError, match="a generator's state is a CPU uint8 tensor of 16 elements"):
        torch.pjrt.set_rng_state(torch.zeros(3, dtype=torch.uint8))
    assert torch.pjrt.initial_seed() == torch.pjrt.default_generator().initial_seed()


def test_fork_rng() -> None:
    torch.manual_seed(1)
    with torch.random.fork_rng(device_type=DEVICE):
        inside = torch.rand(4, device=DEVICE).tolist()
        torch.manual_seed(99)
    assert torch.rand(4, device=DEVICE).tolist() == inside


def test_dropout() -> None:
    x = torch.ones(200, 200, device=DEVICE)
    for p in (0.1, 0.5, 0.9):
        y = torch.nn.functional.dropout(x, p).cpu()
        kept = y != 0
        assert abs(kept.float().mean().item() - (1 - p)) < 0.01
        torch.testing.assert_close(y[kept], torch.full_like(y[kept], 1 / (1 - p)))
    assert torch.equal(torch.nn.functional.dropout(x, 0.5, training=False).cpu(), x.cpu())
    assert torch.nn.functional.dropout(x, 1.0).sum().item() == 0
    assert torch.equal(torch.nn.functional.dropout(x, 0.0).cpu(), x.cpu())


def test_dropout_backward_uses_the_same_mask() -> None:
    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.3)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_what_dropout_drops_of_no_finite_number_is_nan(number: float) -> None:
    """The result is a product with 0, as on the CPU, so it doesn't hide that a network has overflowed."""
    x = torch.full((1000,), number, device=DEVICE, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.5)
    y.backward(torch.full_like(y, number))
    assert x.grad is not None
    for result in (y.detach().cpu(), x.grad.cpu()):
        assert not result.isfinite().any()
        assert result.isnan().sum() > 400


def test_an_exponential_is_above_zero() -> None:
    """One draw in 2^24 rounds to 0 in float16."""
    torch.manual_seed(0)
    assert torch.empty(1 << 26, device=DEVICE, dtype=torch.float16).exponential_().min() > 0


def test_distributions() -> None:
    torch.manual_seed(0)
    n = 100_000
    u, z = torch.rand(n, device=DEVICE).cpu(), torch.randn(n, device=DEVICE).cpu()
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(u.var() - 1 / 12) < 0.01
    assert abs(z.mean()) < 0.02
    assert abs(z.std() - 1) < 0.02
    assert abs((z.abs() < 1).float().mean() - 0.6827) < 0.01
    e = torch.empty(n, device=DEVICE).exponential_(2).cpu()
    assert abs(e.mean() - 0.5) < 0.01
    assert e.min() > 0
    i = torch.randint(-3, 4, (n,), device=DEVICE).cpu()
    counts = torch.bincount(i + 3)
    assert counts.shape == (7,)
    assert (counts / n - 1 / 7).abs().max() < 0.01
    assert abs(torch.corrcoef(torch.stack([z[:-1], z[1:]]))[0, 1]) < 0.02


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.randn(5000, dtype=dtype, device=DEVICE)
    assert x.dtype == dtype
    assert abs(x.double().mean().item()) < 0.1
    u = torch.rand(5000, dtype=dtype, device=DEVICE).cpu()
    assert u.max() < 1
    assert u.min() >= 0


def test_integers_below_a_large_number_are_as_likely() -> None:
    most = 3 << 30  # three quarters of 2^32
    eighths = torch.randint(most, (200_000,), device=DEVICE).cpu() // (most // 8)
    counts = eighths.bincount(minlength=8)
    assert counts.sub(25_000).abs().max() < 25_000 * 0.03, counts


@pytest.mark.each_way
def test_normal_numbers_are_contiguous() -> None:
    for device in ("cpu", DEVICE):
        for x in (torch.ones(2, 3, device=device).t(), torch.ones(3, 1, device=device).expand(3, 2)):
            drawn = torch.normal(0.0, x), torch.normal(x, 1.0), torch.normal(x, x)
            assert [(y.stride(), y.shape) for y in drawn] == [((2, 1), (3, 2))] * 3
            assert drawn[0].cpu().abs().max() < 10


def test_permutations() -> None:
    for n in (0, 1, 2, 100):
        assert sorted(torch.randperm(n, device=DEVICE).tolist()) == list(range(n))
    assert torch.randperm(5, device=DEVICE, dtype=torch.int32).dtype == torch.int32
    firsts = torch.tensor([torch.randperm(4, device=DEVICE)[0].item() for _ in range(800)])
    assert (torch.bincount(firsts, minlength=4) / 800 - 0.25).abs().max() < 0.07


@pytest.mark.parametrize(("dtype", "most"), [(torch.uint8, 256), (torch.int8, 128), (torch.float16, 2049)], ids=str)
def test_permutations_of_more_than_a_dtype_holds(dtype: torch.dtype, most: int) -> None:
    assert torch.randperm(most, dtype=dtype, device=DEVICE).long().sort().values.tolist() == list(range(most))
    errors = []
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError) as error:
            torch.randperm(most + 1, dtype=dtype, device=device)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_multinomial() -> None:
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0], device=DEVICE)
    drawn = torch.multinomial(weights, 20_000, replacement=True).cpu()
    assert set(drawn.tolist()) == {1, 2}
    assert abs((drawn == 2).float().mean() - 0.75) < 0.02
    for _ in range(5):
        assert sorted(torch.multinomial(weights, 2).tolist()) == [1, 2]
    rows = torch.multinomial(torch.eye(4, device=DEVICE), 1).squeeze(1)
    assert rows.tolist() == [0, 1, 2, 3]


def test_nothing_runs_on_the_host() -> None:
    for draw in DRAWS.values():
        draw().cpu()
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8, torch.bool])
@pytest.mark.parametrize(
    "bounds", [(0, 2), (-(2**40), 42), (42, 2**40), (3, 2), (2**62, 2**62 + 1), (-(2**40), None), (2**62,)]
)
def test_bounds_of_integers_are_looked_at_as_on_the_cpu(dtype: torch.dtype, bounds: tuple[int | None, ...]) -> None:
    """Bounds beyond a float's exact integers are warned of, in each call."""

    def draw(device: str) -> None:
        try:
            torch.empty(20, dtype=dtype, device=device).random_(*bounds)
        except RuntimeError as error:
            warnings.warn(str(error), stacklevel=1)

    for _ in range(2):
        assert warned(lambda: draw(DEVICE)) == warned(lambda: draw("cpu"))
