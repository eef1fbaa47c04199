"""How often work compiles: varying scalars and offsets are inputs of existing programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torch_pjrt
from tests.engine.run.test_sync import counted, ready

pytestmark = pytest.mark.compiled

DEVICE = "pjrt"


def compiles(step: Callable[[int], Any], first: int, then: int) -> None:
    """Asserts at most `first` compiles in two steps, and exactly `then` in the next six."""
    with counted() as c:
        for i in range(2):
            step(i)
    assert c.compiles <= first
    with counted() as c:
        for i in range(2, 8):
            step(i)
    assert c.compiles == then


def test_reading_elements_compiles_nothing() -> None:
    x = ready(*range(20))
    with counted() as c:
        assert [x[i].item() for i in range(20)] == list(range(20))
    assert c.compiles == 0


def test_reading_elements_of_a_result() -> None:
    x = ready(*range(20))
    with counted() as c:
        for i in range(20):
            assert (x[i] + 1).item() == i + 1
    assert c.compiles <= 2


def test_minibatches() -> None:
    data = torch.arange(80.0).view(40, 2)
    x = data.to(DEVICE)
    with counted() as c:
        for i in range(0, 40, 4):
            assert x[i : i + 4].sum().item() == data[i : i + 4].sum().item()
    assert c.compiles <= 2


def test_writes_at_moving_places() -> None:
    x = torch.zeros(10, 3, device=DEVICE)
    with counted() as c:
        for i in range(10):
            x[i] = i
            x[i, 1].add_(100)
            torch_pjrt.sync(x)
    assert c.compiles <= 3
    assert x.cpu().tolist() == [[float(i), 100.0 + i, float(i)] for i in range(10)]


def test_scalars_that_vary() -> None:
    x = ready(1, 2, 3)

    def step(i: int) -> None:
        assert (x * i + (i + 0.5)).tolist() == [i * v + i + 0.5 for v in (1, 2, 3)]

    compiles(step, 2, 0)


def test_alpha_and_bounds_that_vary() -> None:
    x = ready(1.0, 2.0, 3.0)

    def step(i: int) -> None:
        expected = torch.tensor([1.0, 2, 3]).add_(torch.ones(3), alpha=-0.1 * i).clamp(min=0.05 * i)
        torch.testing.assert_close(
            x.clone().add_(torch.ones(3, device=DEVICE), alpha=-0.1 * i).clamp(min=0.05 * i).cpu(), expected
        )

    compiles(step, 3, 0)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_learning_rates_and_step_counters(optimizer: type[torch.optim.Optimizer], foreach: bool) -> None:
    models = []
    losses: list[list[float]] = []
    counts = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).to(device)
        x = torch.arange(6.0).view(2, 3).to(device)
        kind: Any = optimizer
        opt = kind(model.parameters(), lr=0.01, foreach=foreach)
        schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
        losses.append([])
        for _ in range(6):
            before = torch_pjrt.metrics()["graphs_compiled"]
            opt.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            opt.step()
            schedule.step()
            losses[-1].append(loss.item())
            torch_pjrt.sync()
            counts.append(torch_pjrt.metrics()["graphs_compiled"] - before)
        models.append(model)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
    assert counts[9:] == [0, 0, 0], counts
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(q.cpu(), p, rtol=1e-4, atol=1e-5)


def test_random_numbers_compile_once() -> None:
    x = ready(*[1.0] * 50)
    seen = set()

    def step(i: int) -> None:
        y = torch.nn.functional.dropout(x, 0.5) + torch.randn(50, device=DEVICE) + torch.rand_like(x)
        seen.add(tuple(y.tolist()))

    compiles(step, 1, 0)
    assert len(seen) == 8


def test_counters_on_the_device() -> None:
    count = torch.zeros((), device=DEVICE)

    def step(i: int) -> None:
        count.add_(1)
        assert count.item() == i + 1

    compiles(step, 2, 0)
