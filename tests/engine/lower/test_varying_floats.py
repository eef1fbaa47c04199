"""Floats of calls that change from step to step are inputs of their programs, like Scalars, and give correct
results."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt

pytestmark = pytest.mark.compiled  # an interpreted graph may be compiled in any iteration


def compiles(step: Callable[[int], object], rounds: int = 7) -> list[int]:
    """Returns how many programs each iteration compiles."""
    counts = []
    for i in range(rounds):
        torch_pjrt.sync()
        torch_pjrt.reset_metrics()
        step(i)
        counts.append(torch_pjrt.metrics()["graphs_compiled"])
    return counts


@pytest.mark.parametrize("train", [True, False])
def test_a_mean_over_all_batches(train: bool) -> None:
    torch.manual_seed(0)
    ours, theirs = nn.BatchNorm1d(13, momentum=None), nn.BatchNorm1d(13, momentum=None)
    ours.to("pjrt").train(train), theirs.train(train)
    x = torch.randn(7, 9, 13)

    def step(i: int) -> None:
        torch.testing.assert_close(ours(x[i].to("pjrt")).cpu(), theirs(x[i]))

    assert compiles(step)[3:] == [0, 0, 0, 0]
    torch.testing.assert_close(ours.running_mean.cpu(), theirs.running_mean)
    torch.testing.assert_close(ours.running_var.cpu(), theirs.running_var)


def test_update_bn() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 6, 3), nn.BatchNorm2d(6))
    other = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 6, 3), nn.BatchNorm2d(6))
    other.load_state_dict(net.state_dict())
    net.to("pjrt")
    batches = [torch.randn(4, 3, 11, 11) for _ in range(9)]
    torch_pjrt.reset_metrics()
    torch.optim.swa_utils.update_bn(batches, net, device="pjrt")
    torch_pjrt.sync()
    assert torch_pjrt.metrics()["graphs_compiled"] <= 4
    torch.optim.swa_utils.update_bn(batches, other)
    for a, b in zip(net.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]] = {
    "huber": lambda x, y, i: F.huber_loss(x, y, delta=0.1 + i / 4),
    "smooth_l1": lambda x, y, i: F.smooth_l1_loss(x, y, beta=i / 4),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(17, 3), torch.randn(17, 3)
    there = y.to("pjrt")

    def step(i: int) -> None:
        results = []
        for device in ("pjrt", "cpu"):
            leaf = x.clone().to(device).requires_grad_()
            loss = LOSSES[name](leaf, there if device == "pjrt" else y, i)
            loss.backward()
            results.append((loss.detach().cpu(), leaf.grad.cpu()))
        torch.testing.assert_close(*results)

    assert compiles(step)[3:] == [0, 0, 0, 0]


def test_noise_and_dropout() -> None:
    x = torch.ones(101, 103, device="pjrt")

    def noise(i: int) -> None:
        drawn = torch.empty_like(x).normal_(2.0 * i, 0.5 + i).cpu()
        assert abs(drawn.mean() - 2 * i) < 0.05 * (i + 1)
        assert abs(drawn.std() - (0.5 + i)) < 0.05 * (i + 1)

    def dropped(i: int) -> None:
        leaf = x.detach().requires_grad_()
        p = i / 6
        y = F.dropout(leaf, p)
        y.sum().backward()
        kept = y.detach().cpu()
        assert abs((kept == 0).float().mean() - p) < 0.02
        assert torch.equal(leaf.grad.cpu(), kept)
        if p < 1:
            torch.testing.assert_close(kept[kept != 0], torch.full(((kept != 0).sum().item(),), 1 / (1 - p)))

    assert compiles(noise)[3:] == [0, 0, 0, 0]
    assert compiles(dropped)[3:6] == [0, 0, 0]  # a probability of 1 is another call


def test_what_pytorch_refuses_is_refused_in_later_calls_too() -> None:
    x, y = torch.ones(19, device="pjrt"), torch.zeros(19, device="pjrt")
    x.clone().normal_(0, 1)
    with pytest.raises(RuntimeError, match=r"std >= 0\.0, but found std -1"):
        x.clone().normal_(0, -1)
    F.huber_loss(x, y, delta=1.0)
    with pytest.raises(RuntimeError, match="non-positive values for delta"):
        F.huber_loss(x, y, delta=0.0)
    with pytest.raises(RuntimeError, match="negative values for beta"):
        F.smooth_l1_loss(x, y, beta=-1.0)


DRAWS: dict[str, Callable[[int], torch.Tensor]] = {
    "randint": lambda i: torch.randint(0, 10 + i, (50,), device="pjrt"),
    "randint from": lambda i: torch.randint(-1 - i, 10 + i, (50,), device="pjrt", dtype=torch.int32),
    "random_": lambda i: torch.empty(50, device="pjrt").random_(5 + i),
    "uniform_": lambda i: torch.empty(50, device="pjrt").uniform_(-i, 1 + i / 4),
    "uniform_ of halves": lambda i: torch.empty(50, device="pjrt", dtype=torch.bfloat16).uniform_(0, 1 + i / 4),
    "bernoulli_": lambda i: torch.empty(50, device="pjrt").bernoulli_(i / 6),
    "exponential_": lambda i: torch.empty(50, device="pjrt").exponential_(0.5 + i),
    "triu": lambda i: torch.ones(8, 7, device="pjrt").triu(i),
    "tril": lambda i: torch.ones(2, 8, 7, device="pjrt").tril_(-1 - i),
}


@pytest.mark.parametrize("name", DRAWS)
def test_bounds_of_draws_and_triangles(name: str) -> None:
    draw = DRAWS[name]
    drawn = []

    def step(i: int) -> None:
        torch.manual_seed(7)
        drawn.append(draw(i).cpu())

    assert compiles(step)[2:] == [0] * 5
    torch.manual_seed(7)
    torch.testing.assert_close(draw(0).cpu(), drawn[0])  # input bounds against constant bounds
    if name == "randint from":
        assert all(-1 - i <= x.min() < x.max() < 10 + i for i, x in enumerate(drawn))
    if name == "uniform_":
        assert all(-i <= x.min() < x.max() < 1 + i / 4 for i, x in enumerate(drawn))
    if name == "bernoulli_":
        assert [drawn[0].sum(), drawn[6].sum()] == [0, 50]
    if name in ("triu", "tril"):
        assert torch.equal(drawn[5], draw(5).cpu())
        assert torch.equal(drawn[5], torch.ones(8, 7).triu(5) if name == "triu" else torch.ones(2, 8, 7).tril(-6))


def test_bounds_that_are_wrong_are_errors_all_the_same() -> None:
    x, bytes_ = torch.empty(5, device="pjrt"), torch.empty(5, device="pjrt", dtype=torch.uint8)
    for i in range(1, 4):
        x.uniform_(0, i), x.bernoulli_(1 / i), x.exponential_(i), x.random_(0, i), bytes_.random_(0, 10 * i)
    for wrong in (
        lambda: x.uniform_(3, 2),
        lambda: x.uniform_(0, 1e39),
        lambda: x.bernoulli_(1.5),
        lambda: x.exponential_(-1),
        lambda: x.random_(3, 3),
        lambda: x.random_(2**62 + 1, 2**62),
        lambda: bytes_.random_(0, 300),
        lambda: torch.randint(5, 2, (3,), device="pjrt"),
    ):
        with pytest.raises(RuntimeError, match=r"expects|range|less than|lambda|bounds"):
            wrong()
    for low, high in ((0, 2**40), (-(2**45), 5), (2**61, 2**62), (-(2**45), 7), (0, 2**41)):
        drawn = torch.randint(low, high, (1000,), device="pjrt").cpu()
        eighth = (high - low) // 8
        assert low <= drawn.min() < low + eighth
        assert high - eighth < drawn.max() < high
