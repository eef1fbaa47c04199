"""compile_step with hyperparameters that are tensors: PyTorch reads their values, a program computes with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": torch.optim.SGD,
    "SGD-momentum": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, nesterov=True),
    "SGD-foreach": lambda p, lr: torch.optim.SGD(p, lr, foreach=True),
    "Adam": torch.optim.Adam,
    "Adam-of-one-element": lambda p, lr: torch.optim.Adam(p, lr.view(1)),
    "Adam-fused": lambda p, lr: torch.optim.Adam(p, lr, fused=True),
    "Adam-betas": lambda p, lr: torch.optim.Adam(p, lr, (torch.tensor(0.8), torch.tensor(0.9)), foreach=False),
    "AdamW": torch.optim.AdamW,
    "Adamax": torch.optim.Adamax,
    "Adamax-foreach": lambda p, lr: torch.optim.Adamax(p, lr, foreach=True),
    "Adadelta": torch.optim.Adadelta,
    "Adadelta-foreach": lambda p, lr: torch.optim.Adadelta(p, lr, foreach=True),
    "Adagrad": torch.optim.Adagrad,
    "RMSprop": torch.optim.RMSprop,
    "RMSprop-foreach": lambda p, lr: torch.optim.RMSprop(p, lr, foreach=True),
    "RMSprop-momentum": lambda p, lr: torch.optim.RMSprop(p, lr, momentum=0.5, centered=True),
    "Rprop": torch.optim.Rprop,
    "NAdam": torch.optim.NAdam,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_learning_rate_that_is_a_tensor(name: str) -> None:
    def train(wrap: Callable[[Any], Any]) -> tuple[list[torch.Tensor], Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        optimizer = OPTIMIZERS[name](model.parameters(), torch.tensor(0.01))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        results = []
        for _ in range(5):
            results.append(step(torch.tensor([[1.0, -2.0, 0.5]])).detach())
            schedule.step()
        return [*results, *model.state_dict().values(), optimizer.param_groups[0]["lr"]], step

    (ours, step), (eager, _) = train(torch_pjrt.compile_step), train(lambda step: step)
    for a, b in zip(ours, eager, strict=True):
        torch.testing.assert_close(a, b)
    assert step.programs == 1
    assert step.captures <= 2  # the first makes the optimizer's state


def test_numbers_that_are_tensors_in_an_operator() -> None:
    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        pair = torch._foreach_addcdiv([x, x], [x, x], [x + 1, x + 2], value=-n)
        return torch.add(x, x, alpha=n), x.sub(x, alpha=n), torch.addcmul(x, x, x, value=n), torch.full_like(x, n), pair

    fast = torch_pjrt.compile_step(fn)
    for value in (0.5, 3.0):
        arguments = torch.arange(1.0, 4.0), torch.tensor(value)
        torch.testing.assert_close(fast(*arguments), fn(*arguments))
    assert fast.captures == 1


@pytest.mark.parametrize(
    "read", [float, bool, lambda lr: bool(lr.item() > 0), lambda lr: torch.ones(2).clamp(max=int(lr))]
)
def test_a_learning_rate_that_is_read(read: Callable[[torch.Tensor], Any]) -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), torch.tensor(0.1))

    def step(x: torch.Tensor) -> torch.Tensor:
        read(optimizer.param_groups[0]["lr"])
        return model(x)

    with pytest.raises(torch_pjrt.CaptureError, match=r"SGD\.param_groups\[0\]\['lr'\], make this a Python float"):
        torch_pjrt.compile_step(step)(torch.ones(2, 3))


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d])
def test_a_batch_norm_that_averages_over_all_batches(kind: type[nn.Module]) -> None:
    eager, ours = kind(3, momentum=None), kind(3, momentum=None)
    step = torch_pjrt.compile_step(lambda x: ours(ours(x)))
    for _ in range(3):
        x = torch.randn((4, 3, 2, 2)[: 4 if kind is nn.BatchNorm2d else 2])
        torch.testing.assert_close(step(x), eager(eager(x)))
        torch.testing.assert_close(ours.state_dict(), eager.state_dict())
    assert step.captures == 1
    assert ours.momentum is None
    torch.testing.assert_close(torch_pjrt.jit(ours.eval(), (x,))(x), eager.eval()(x))
    torch.testing.assert_close(ours.state_dict(), eager.state_dict())


INTEGERS: list[Callable[[torch.Tensor], Any]] = [
    lambda n: torch.zeros(n.max().item()),
    lambda n: n + n.max().item(),
    lambda n: n == n.max().item(),
    lambda n: [1, 2, 3][n.max().item()],
    lambda n: range(n.max().item()),
    lambda n: n[: n.max().item()],
    lambda n: n * max(n.max().item(), 1),
    lambda n: n * (n.max().item() // 2),
    lambda n: {1: n, 2: n}[n.max().item()],
    lambda n: n * len(f"{n.max().item()}"),
    lambda n: n if (n > 0).all().item() else -n,
    lambda n: n.max().item(),
]


@pytest.mark.parametrize("at", range(len(INTEGERS)))
def test_integers_that_only_a_run_has(at: int) -> None:
    with pytest.raises(torch_pjrt.CaptureError, match=r"only a run"):
        torch_pjrt.jit(INTEGERS[at], (torch.tensor([1, 2]),))


def writes_and_views(c: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> Any:
    a = c[i]
    c[j] = 5
    before = c[i] * 1
    a.mul_(2)
    c[i, 1] += 3
    column = c[..., j]
    column[0] = -4
    element = c[i][j]
    element += 1
    c[i, None, j] = 8
    return (
        a * 1,
        before,
        column * 2,
        element * 1,
        c[:, i].sum() + c[-i - 1],
        c[i, torch.tensor([0, 2])],
        c[1:][i - 1] * 1,
    )


def counts_and_loops(c: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> Any:
    known = torch.tensor(1)
    c[known].add_(1)
    c[known, i] += 2
    counts = torch.zeros(3, dtype=torch.int32)
    counts[i] += 1
    counts[i] += 1
    for t in range(3):
        c[i] = c[i] * 0.5 + t
    made = torch.zeros(2, 3, 4)
    made[:, i] = c[i]
    made[1, :, j].fill_(9)
    return counts, made


def gradients(w: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> Any:
    with torch.enable_grad():
        w = w.detach().requires_grad_()
        hidden = w.sin()
        first = hidden[i] * 3
        hidden = hidden * 2
        hidden[i] = w[0]
        (gradient,) = torch.autograd.grad(first.sum() + hidden[i - 1].exp().sum() + hidden[:, j].sum(), w)
    return gradient


@pytest.mark.parametrize("fn", [writes_and_views, counts_and_loops, gradients])
def test_elements_at_places_that_tensors_give(fn: Callable[..., Any]) -> None:
    examples = torch.randn(3, 4), torch.tensor(0), torch.tensor(0)
    calls = [torch_pjrt.jit(fn, examples), torch_pjrt.compile_step(fn)]
    for i, j in ((1, 2), (2, -1), (0, 0)):
        c, places = torch.randn(3, 4), (torch.tensor(i), torch.tensor(j))
        expected = c.clone()
        result = fn(expected, *places)
        for call in calls:
            given = c.clone()
            torch.testing.assert_close(call(given, *places), result)
            torch.testing.assert_close(given, expected)
    for call in calls:
        with pytest.raises(IndexError, match="out of"):
            print(call(torch.randn(3, 4), torch.tensor(7), torch.tensor(0)))
