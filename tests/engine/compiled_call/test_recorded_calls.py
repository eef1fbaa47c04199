"""A small compiled function that is called within a recorded step is recorded, too (Note [Recorded calls])."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import torch_pjrt


@pytest.fixture(autouse=True)
def compiled_at_once() -> Iterator[None]:
    with torch_pjrt.strict_mode():
        yield


def executions(f: Callable[[], Tensor]) -> tuple[Tensor, int]:
    """Returns the result, and how many programs compute it once all is known."""
    f().cpu()
    torch_pjrt.reset_metrics()
    return f().cpu(), torch_pjrt.metrics()["executions"]


def test_a_step_stays_one_program() -> None:
    attention = torch.compile(lambda q, k: (q @ k.T).softmax(-1) @ k, backend="pjrt")
    x, w = torch.randn(6, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)

    def step(f: Callable[[Tensor, Tensor], Tensor], device: str) -> Tensor:
        h, v = x.to(device), w.to(device)
        for _ in range(3):
            h = h + f((h @ v).tanh(), h * 2)
        return h.sum(1)

    found, count = executions(lambda: step(attention, "pjrt"))
    assert count == 1
    torch.testing.assert_close(found, step(lambda q, k: (q @ k.T).softmax(-1) @ k, "cpu"))
    assert "a call of a compiled graph" not in torch_pjrt.metrics()["syncs_by_cause"]


def test_a_call_by_itself_runs_as_a_program() -> None:
    double = torch.compile(lambda x: x * 2, backend="pjrt")
    x = torch.ones(3, device="pjrt")
    x.cpu()
    double(x)
    torch_pjrt.reset_metrics()
    double(x)
    assert torch_pjrt.metrics()["executions"] == 1


def test_a_step_with_its_backward() -> None:
    def f(x: Tensor) -> Tensor:
        return (x.exp() + x).sin()

    fast = torch.compile(f, backend="pjrt")
    w = torch.randn(4, 4)

    def step(f: Callable[[Tensor], Tensor], device: str) -> Tensor:
        v = w.to(device).requires_grad_()
        loss = f(f(v * 2) @ v).square().mean()
        (gradient,) = torch.autograd.grad(loss, v)
        return gradient

    found, count = executions(lambda: step(fast, "pjrt"))
    assert count == 1
    torch.testing.assert_close(found, step(f, "cpu"))


def aliases(x: Tensor) -> tuple[Tensor, ...]:
    y = x + 1
    return y, y[1:], x, x.t()


def constants(x: Tensor) -> tuple[Tensor, ...]:
    return torch.arange(3.0, device=x.device), x * torch.arange(x.shape[-1], device=x.device)


def of_a_view(x: Tensor) -> tuple[Tensor, ...]:
    return (x.t().exp(), x.sum())


@pytest.mark.parametrize("f", [aliases, constants, of_a_view])
@pytest.mark.parametrize("prepare", [lambda x: x * 2, lambda x: (x * 2).t(), lambda x: (x * 2)[:, ::2]])
def test_what_a_recorded_call_returns(
    f: Callable[[Tensor], tuple[Tensor, ...]], prepare: Callable[[Tensor], Tensor]
) -> None:
    """Results alias each other and the arguments as the function's own do, and see later writes."""
    x = torch.arange(16.0).view(4, 4)
    found, expected = [], []
    for results, function, device in ((found, torch.compile(f, backend="pjrt"), "pjrt"), (expected, f, "cpu")):
        made = function(prepare(x.to(device)))
        made[0].add_(1)
        results += [each.cpu() for each in made]
    torch.testing.assert_close(found, expected)


def test_what_is_not_recorded() -> None:
    """A call that updates its argument, draws, or asserts runs as a program."""

    def update(x: Tensor) -> Tensor:
        return x.mul_(2).sum()

    def asserted(x: Tensor) -> Tensor:
        torch._assert_async((x < 4).all(), "too large")
        return x * 2

    x = torch.ones(3)
    for f in (update, asserted):
        fast = torch.compile(f, backend="pjrt")
        for _ in range(2):
            y, z = x.to("pjrt") + 1, x + 1
            torch.testing.assert_close((fast(y).cpu(), y.cpu()), (f(z), z))
    with pytest.raises(RuntimeError, match="too large"):
        fast(x.to("pjrt") + 8).cpu()
    drawn = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5), backend="pjrt")
    y = torch.ones(64, device="pjrt")
    assert not torch.equal(drawn(y * 2).cpu(), drawn(y * 2).cpu())


def test_a_large_call_is_not_recorded() -> None:
    def f(x: Tensor) -> Tensor:
        for _ in range(220):
            x = x.sin()
        return x

    fast = torch.compile(f, backend="pjrt")
    x = torch.ones(3)
    found, count = executions(lambda: fast(x.to("pjrt") + 1))
    assert count == 2
    torch.testing.assert_close(found, f(x + 1))
