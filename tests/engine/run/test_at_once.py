"""Calls whose next scalar is read soon run on the eager fast path (Note [At once])."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

import torch_pjrt

pytestmark = [pytest.mark.host_memory, pytest.mark.parametrize("tier", ["auto"], indirect=True)]
DEVICE = "pjrt"
Loop = Callable[[str], list[float]]


def history(device: str) -> list[float]:
    """The loop of L-BFGS: the scalar that is read is the factor of the next update."""
    directions = torch.linspace(-1, 1, 320, dtype=torch.float64).reshape(20, 16).to(device)
    q = torch.ones(16, dtype=torch.float64).to(device)
    factors = []
    for direction in directions.unbind():
        factor = direction.dot(q) * 0.25
        q.add_(direction, alpha=-factor)
        factors.append(factor)
    return [*map(float, factors), *q.cpu().tolist()]


def held(device: str) -> list[float]:
    """The written tensor has other names, too: views see the write, copies don't."""
    x = torch.arange(6.0, dtype=torch.float64).to(device)
    seen = []
    for i in range(20):
        copy, view, twin = x.clone(), x[2:4], x.view(2, 3)
        x.mul_(0.5)
        view.add_(i)
        seen += [x.sum().item(), copy.sum().item(), twin[1].sum().item()]
    return seen


def pending(device: str) -> list[float]:
    """Pending work on the old value gets the old value."""
    x, weight = torch.arange(4.0, dtype=torch.float64).to(device), torch.ones(4, dtype=torch.float64).to(device)
    waiting, seen = [], []
    for _ in range(20):
        large = torch.ones(5000, dtype=torch.float64).to(device) * x[1]  # too large for the eager fast path
        waiting.append(large)
        x.add_(weight)
        seen.append(x.sum().item())
    return seen + [one[7].item() for one in waiting]


def dtypes(device: str) -> list[float]:
    whole, half = torch.arange(5).to(device), torch.arange(5.0).to(device, torch.bfloat16)
    seen: list[float] = []
    for _ in range(20):
        whole += 1
        half = half * 1.5
        seen += [whole.sum().item(), float((whole > 7).any()), half.sum().item(), (whole / 3).max().item()]
    return seen


def shared(device: str) -> list[float]:
    """Both arguments are the tensor that is written."""
    x = torch.arange(1.0, 5.0, dtype=torch.float64).to(device)
    seen = []
    for _ in range(20):
        x.mul_(x).sqrt_().add_(x, alpha=0.1)
        seen.append(x.dot(x).item())
    return seen


def sizes(device: str) -> list[float]:
    seen = []
    for i in range(30):
        x = torch.full((i % 3, 4), 2.0, dtype=torch.float64).to(device)
        seen.append((x * i).sum().item())
        x.resize_(2, 4).fill_(i)
        seen.append(x.t().contiguous().sum().item())
    return seen


LOOPS: list[Loop] = [history, held, pending, dtypes, shared, sizes]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_numbers_are_those_of_the_cpu(loop: Loop) -> None:
    torch.testing.assert_close(loop(DEVICE), loop("cpu"))


def test_a_loop_that_reads_makes_no_graphs() -> None:
    x = torch.ones(8).to(DEVICE)
    for _ in range(10):
        x.sum().item()
    y = x.sum()  # runs now
    torch_pjrt.reset_metrics()
    assert torch_pjrt.metrics()["syncs"] == 0
    assert y.item() == 8
    metrics = torch_pjrt.metrics()
    assert (metrics["executions"], metrics["graphs_run_by_calls"], metrics["nodes_executed"]) == (1, 1, 1)
    assert metrics["syncs"] == 1
    assert "leaf" in torch_pjrt.to_graph(lambda: x.sum())  # a trace still has nodes


def test_a_stretch_that_becomes_long_is_recorded() -> None:
    x = torch.ones(8).to(DEVICE)
    for _ in range(10):
        (x * 2).sum().item()
    torch_pjrt.reset_metrics()
    y = x * 2
    for _ in range(20):
        y = y + x
    assert y.sum().item() == 8 * 22
    assert torch_pjrt.metrics()["nodes_executed"] == 22
    torch_pjrt.reset_metrics()
    y = x * 2  # starts a long interval
    assert y.sum().item() == 16
    assert torch_pjrt.metrics()["nodes_executed"] == 2


def test_draws_are_those_of_a_graph() -> None:
    def draws(reads: bool) -> list[float]:
        torch.manual_seed(3)
        x, seen = torch.rand(4, 6).to(DEVICE), []
        for _ in range(20):
            drawn = x.softmax(1).multinomial(1).sum()
            seen.append(drawn.item() if reads else drawn)
        return [float(one) for one in seen]

    assert draws(True) == draws(False)


def test_an_error_is_the_ops_own() -> None:
    x = torch.ones(8).to(DEVICE)
    for _ in range(20):
        x.sum().item()
        with pytest.raises(RuntimeError, match=r"singular|not invertible"):
            torch.linalg.inv(torch.zeros(2, 2).to(DEVICE)).sum().item()
        with pytest.raises(RuntimeError, match="The size of tensor a"):
            x + torch.ones(3).to(DEVICE)
    assert x.sum().item() == 8


def test_threads_that_read() -> None:
    found: dict[int, float] = {}

    def read(i: int) -> None:
        x = torch.full((8,), float(i)).to(DEVICE)
        for _ in range(200):
            x.add_(1)
            found[i] = x.sum().item()

    threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: 8.0 * (i + 200) for i in range(4)}


def test_strict_mode_compiles_what_is_read() -> None:
    x = torch.ones(9).to(DEVICE)
    for _ in range(10):
        x.sum().item()
    torch_pjrt.reset_metrics()
    with torch_pjrt.strict_mode():
        assert x.sum().item() == 9
    assert torch_pjrt.metrics()["graphs_run_by_calls"] == 0


def test_a_policy_set_anew_counts_from_there_on() -> None:
    x = torch.ones(3, device=DEVICE)

    def waits() -> bool:
        return torch_pjrt._C.is_pending(x.acosh())

    def read() -> None:
        for _ in range(10):
            assert x.acosh().sum().item() == 0

    torch_pjrt.sync(x)
    read()
    assert not waits()
    torch_pjrt._C.set_compile_policy("auto")
    assert waits()
    read()
    assert not waits()
