"""Initial optimizer state is made before the first step, which is then the same graph as all others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt

DEVICE = "pjrt"
Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "Adam": torch.optim.Adam,
    "AdamW, amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, fused=True),
    "RMSprop, centered": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.5),
    "SGD, momentum": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9),
    "SGD, nesterov, one by one": lambda p: torch.optim.SGD(
        p, 0.01, 0.9, weight_decay=0.1, nesterov=True, foreach=False
    ),
    "SGD, fused": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, fused=True),
    "Adam, one by one": lambda p: torch.optim.Adam(p, foreach=False),
    "Adadelta": torch.optim.Adadelta,
    "Adamax": torch.optim.Adamax,
}


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(x.to(next(model.parameters()).device)).square().mean().backward()
    optimizer.step()


@pytest.mark.compiled
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.cpu_arithmetic
def test_the_first_step_is_the_program_of_all(name: str) -> None:
    model = net()
    moved = copy.deepcopy(model).to(DEVICE)
    ours, cpus = OPTIMIZERS[name](moved.parameters()), OPTIMIZERS[name](model.parameters())
    compiled = []
    for i in range(4):
        x = torch.full((4, 5), i + 1.0)
        torch_pjrt.reset_metrics()
        step(moved, ours, x)
        step(model, cpus, x)
        metrics = torch_pjrt.metrics()
        compiled.append(metrics["graphs_compiled"])
        assert metrics["executions"] == 1
    assert compiled == [1, 0, 0, 0]
    for found, wanted in zip(moved.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(found.detach().cpu(), wanted.detach())
    state: dict[str, Any] = ours.state_dict()["state"][0]
    for key, value in cpus.state_dict()["state"][0].items():
        torch.testing.assert_close(state[key].cpu(), value)


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["Adam", "SGD, momentum"])
def test_empty_memory_that_is_filled(name: str) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        test_the_first_step_is_the_program_of_all(name)
    finally:
        torch.use_deterministic_algorithms(False)


class Scratch(torch.optim.Optimizer):
    """Makes zeros in each step, and has no state before its second."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            total = torch.zeros_like(p)
            total += p.grad
            p -= 0.1 * total
            self.state[p]["steps"] = self.state[p].get("steps", 0) + 1
            if self.param_groups[0].get("fails"):
                raise ValueError("a mistake in the optimizer")


def recorded_by_zeros() -> int:
    torch_pjrt.reset_metrics()
    torch.zeros(3, device=DEVICE)
    return torch_pjrt.metrics()["ops_recorded"]


@pytest.mark.compiled
def test_zeros_elsewhere_are_calls() -> None:
    model, x = net().to(DEVICE), torch.ones(4, 5)
    optimizer = Scratch(model.parameters())
    before = recorded_by_zeros()
    step(model, optimizer, x)
    assert recorded_by_zeros() == before > 0
    torch_pjrt.reset_metrics()
    for _ in range(2):
        step(model, optimizer, x)
    assert torch_pjrt.metrics()["graphs_compiled"] == 1  # the zeros are in it


def test_a_step_that_fails() -> None:
    model, x = net().to(DEVICE), torch.ones(4, 5)
    optimizer = Scratch(model.parameters())
    optimizer.param_groups[0]["fails"] = True
    with pytest.raises(ValueError, match="a mistake"):
        step(model, optimizer, x)
    del optimizer.param_groups[0]["fails"]
    assert torch.zeros(3, device=DEVICE).tolist() == [0.0] * 3
    step(model, optimizer, x)
    assert recorded_by_zeros() > 0


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["Adam", "SGD, momentum", "SGD, nesterov, one by one"])
@pytest.mark.parametrize("keyword", [False, True])
def test_a_closure_is_no_part_of_the_step(name: str, keyword: bool) -> None:
    """A closure's own number is a constant until it changes; the optimizer's are inputs from the first step on."""
    model = net()
    moved = copy.deepcopy(model).to(DEVICE)
    ours, cpus = OPTIMIZERS[name](moved.parameters()), OPTIMIZERS[name](model.parameters())

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, factor: float) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = (model(x) + factor).square().mean()
            loss.backward()
            return loss

        loss = optimizer.step(closure=closure) if keyword else optimizer.step(closure)
        assert isinstance(loss, torch.Tensor)

    rows = 23 + 2 * list(OPTIMIZERS).index(name) + keyword  # known from no other test
    x, compiled = torch.ones(rows, 5), []
    moved_x = x.to(DEVICE)
    for factor in (0.5, 0.5, 0.7, 0.9):
        torch_pjrt.reset_metrics()
        train(moved, ours, moved_x, factor)
        train(model, cpus, x, factor)
        compiled.append(torch_pjrt.metrics()["graphs_compiled"])
    assert compiled == [1, 0, 1, 0]
    for found, wanted in zip(moved.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(found.detach().cpu(), wanted.detach())


def test_lbfgs() -> None:
    model = net()
    moved = copy.deepcopy(model).to(DEVICE)
    x = torch.ones(4, 5)
    losses: dict[str, list[float]] = {}
    for one in (moved, model):
        optimizer = torch.optim.LBFGS(one.parameters(), lr=0.1, line_search_fn="strong_wolfe")
        given = x.to(next(one.parameters()).device)

        def closure(one: nn.Module = one, given: torch.Tensor = given) -> torch.Tensor:
            one.zero_grad()
            loss: torch.Tensor = (one(given) - 1).square().mean()
            loss.backward()
            return loss

        losses[given.device.type] = [float(optimizer.step(closure)) for _ in range(3)]
    torch.testing.assert_close(losses[DEVICE], losses["cpu"], rtol=1e-3, atol=1e-5)
