"""Where a backward runs (Note [Backward]): in the caller's thread, which sees its beginning and end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._C import _is_multithreading_enabled as is_multithreaded
from torch.utils.checkpoint import checkpoint

import torch_pjrt

DEVICE = "pjrt"


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    assert is_multithreaded()
    yield
    assert is_multithreaded()


def leaf(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device=DEVICE, requires_grad=True)


class Asks(torch.autograd.Function):
    """x -> 2 x, with a backward that calls ``what``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, what: Any) -> torch.Tensor:
        ctx.what = what
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        ctx.what(gradient)
        return gradient * 2, None


def test_the_callers_thread_runs_it() -> None:
    threads = []
    x = leaf(3)
    y = Asks.apply(x, lambda gradient: threads.append(threading.get_ident()))
    y.sum().backward()
    torch.autograd.grad(Asks.apply(x, lambda gradient: threads.append(threading.get_ident())).sum(), x)
    assert threads == [threading.get_ident()] * 2
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]


def test_another_thread_that_calls_it_runs_it() -> None:
    threads, results = [], []

    def run() -> None:
        x = leaf(3)
        Asks.apply(x, lambda gradient: threads.append(threading.current_thread())).sum().backward()
        assert is_multithreaded()
        results.append(x.grad)

    workers = [threading.Thread(target=run) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert set(threads) == set(workers)
    assert [gradient.tolist() for gradient in results] == [[2, 2, 2]] * 4


def test_backwards_of_other_devices_keep_their_threads() -> None:
    seen = []
    Asks.apply(torch.ones(3, requires_grad=True), lambda gradient: seen.append(is_multithreaded())).sum().backward()
    Asks.apply(leaf(3), lambda gradient: seen.append(is_multithreaded())).sum().backward()
    assert seen == [True, False]


def test_an_error_leaves_it_as_it_was() -> None:
    def fail(gradient: torch.Tensor) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Asks.apply(leaf(3), fail).sum().backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(3, device=DEVICE).sum().backward()
    with pytest.raises(RuntimeError, match="implicitly created only for scalar"):
        leaf(3).mul(2).backward()


def test_a_backward_within_a_backward() -> None:
    x = leaf(3)
    inner = leaf(3)
    seen = []

    def another(gradient: torch.Tensor) -> None:
        with torch.enable_grad():
            (inner * 3).sum().backward()
        seen.append(is_multithreaded())

    Asks.apply(x, another).sum().backward()
    assert inner.grad is not None
    assert x.grad is not None
    assert (inner.grad.tolist(), x.grad.tolist(), seen) == ([3, 3, 3], [2, 2, 2], [False])


def test_edges_for_roots() -> None:
    x = leaf(3)
    y = x * 3
    (gradient,) = torch.autograd.grad([torch.autograd.graph.get_gradient_edge(y)], x, torch.ones(3, device=DEVICE))
    assert gradient.tolist() == [3, 3, 3]


def test_a_deep_recursion() -> None:
    """Beyond a hundred nested backwards, torch continues in threads of a pool."""

    def again(depth: int) -> Any:
        def run(gradient: torch.Tensor) -> None:
            if depth:
                with torch.enable_grad():
                    Asks.apply(leaf(1), again(depth - 1)).backward()
            else:
                reached.append(depth)

        return run

    reached: list[int] = []
    Asks.apply(leaf(1), again(150)).backward()
    assert reached == [0]


def test_what_is_computed_again_in_it_ends_no_round() -> None:
    """A checkpoint's forward copies and reads at the same places as the first one."""

    def block(x: torch.Tensor) -> torch.Tensor:
        scale = torch.arange(256.0).to(DEVICE)  # enough to be a batch
        for _ in range(12):
            x = torch.sin(x * scale)
        return x

    def step(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = checkpoint(block, x, use_reentrant=False)
        return x.sum()

    x = leaf(256)
    step(x).backward()
    assert x.grad is not None
    got = x.grad.cpu()
    torch_pjrt.sync()
    loss = step(x)
    torch_pjrt.sync(loss)
    before = torch_pjrt.metrics()["executions"]
    x.grad = None
    loss.backward()
    assert torch_pjrt.metrics()["executions"] == before
    torch.testing.assert_close(x.grad.cpu(), got)
