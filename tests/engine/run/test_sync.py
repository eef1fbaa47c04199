"""When pending work runs, which part of it, how often it compiles, and that nobody else sees reused memory."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import torch_pjrt
from tests.peak import growth
from torch_pjrt import _C

DEVICE = "pjrt"


class Counted:
    compiles = executions = nodes = recorded = 0


@contextmanager
def counted() -> Iterator[Counted]:
    """Counts what happens in the block, which starts with nothing pending."""
    gc.collect()
    torch_pjrt.sync()
    before = torch_pjrt.metrics()
    result = Counted()
    yield result
    after = torch_pjrt.metrics()
    assert after["host_fallbacks"] == before["host_fallbacks"]
    result.compiles = after["graphs_compiled"] - before["graphs_compiled"]
    result.executions = after["executions"] - before["executions"]
    result.nodes = after["nodes_executed"] - before["nodes_executed"]
    result.recorded = after["ops_recorded"] - before["ops_recorded"]


def ready(*values: float) -> torch.Tensor:
    """Returns a tensor whose value is computed."""
    x = torch.tensor(values, device=DEVICE)
    torch_pjrt.sync(x)
    return x


# --- laziness ---------------------------------------------------------------------------------------------------------


def test_nothing_runs_until_read() -> None:
    x = ready(1, 2, 3)
    with counted() as c:
        y = (x * 2 + 1).relu()
        y.add_(1)
        z = y.t()
    assert (c.executions, c.compiles) == (0, 0)
    assert c.recorded > 0
    assert _C.is_pending(y)
    assert not _C.is_pending(x)
    assert z.cpu().tolist() == [4, 6, 8]
    assert not _C.is_pending(y)


def test_a_result_is_computed_once() -> None:
    x = ready(1, 2, 3)
    with counted() as c:
        y = x.exp().log().exp()
        y.cpu()
        y.cpu()
        y.tolist()
        y[1].item()
        z = y + 1
        z.cpu()
    assert c.nodes == 4
    assert c.executions == 2


def test_a_held_intermediate_is_kept() -> None:
    x = ready(1, 2, 3)
    middle = x.sin().cos()
    end = middle.tan()
    end.cpu()
    with counted() as c:
        middle.cpu()
        (middle + 1).cpu()
    assert c.nodes == 1


def test_a_read_runs_its_own_graph_only() -> None:
    x, y = ready(1, 2), ready(3, 4)
    a, b = x * 2, y * 3
    torch_pjrt.metrics()
    a.cpu()
    assert not _C.is_pending(a)
    assert _C.is_pending(b)
    torch_pjrt.sync(b)
    assert not _C.is_pending(b)


def test_graphs_of_one_leaf_are_not_one_graph() -> None:
    """Two models that read one batch are separate graphs."""
    x = ready(1, 2)
    a, b = x * 2, x * 3
    a.cpu()
    assert _C.is_pending(b)
    assert b.cpu().tolist() == [3, 6]


def test_what_nobody_holds_is_not_run() -> None:
    x = ready(1, 2)
    with counted() as c:
        kept = x + 1
        for _ in range(10):
            x.matmul(x)  # dropped
        chain = kept
        for _ in range(5):
            chain = chain * 2
        del chain
        kept.cpu()
    assert c.nodes == 1


def test_what_nobody_holds_is_no_output() -> None:
    x = ready(1.0, 2.0)
    text = torch_pjrt.to_stablehlo(lambda x: x * 2 + 1, x)
    with counted() as c:
        middle = x * 2
        end = middle + 1
        del middle
        end.cpu()
    assert c.nodes == 2
    main = next(line for line in text.splitlines() if "@main" in line)
    assert main.split("->")[1].count("tensor<") == 1


def test_sync_all_and_sync_some() -> None:
    x, y, z = ready(1), ready(2), ready(3)
    a, b, c = x + 1, y + 1, z + 1
    torch_pjrt.sync([a, b])
    assert [_C.is_pending(t) for t in (a, b, c)] == [False, False, True]
    d = x * 5
    torch_pjrt.sync()
    assert [_C.is_pending(t) for t in (c, d)] == [False, False]
    with pytest.raises(RuntimeError, match="expected tensors on a pjrt device, got one on cpu"):
        torch_pjrt.sync(torch.ones(1))
    torch.pjrt.synchronize()


def test_reads_sync_by_themselves() -> None:
    x = ready(3.0)
    assert (x + 1).item() == 4
    assert bool(x > 2)
    assert int(x * 2) == 6
    assert float(x[0] / 2) == 1.5
    assert (x + 1).tolist() == [4]
    assert f"{x + 2}" == "tensor([5.], device='pjrt:0')"
    assert repr(x.requires_grad_() * 2) == "tensor([6.], device='pjrt:0', grad_fn=<MulBackward0>)"
    assert [t.item() for t in torch.arange(3, device=DEVICE)] == [0, 1, 2]
    assert list(range(5))[torch.tensor(2, device=DEVICE)] == 2
    assert torch.equal(x, x.clone())
    assert torch.allclose(x, x + 0)
    assert (x.detach() == 3).all()
    assert torch.nonzero(ready(0, 1, 0, 2)).tolist() == [[1], [3]]


def test_numpy_is_refused_as_for_cuda() -> None:
    message = (
        r"can't convert pjrt:0 device type tensor to numpy. Use Tensor.cpu\(\) to copy the tensor to host memory first"
    )
    with pytest.raises(TypeError, match=message):
        ready(1).numpy()
    assert ready(1).cpu().numpy()[0] == 1


# --- reused memory ----------------------------------------------------------------------------------------------------


def update(p: torch.Tensor, i: int) -> None:
    p.mul_(0.5).add_(i)


@pytest.mark.parametrize("keep", ["clone", "cpu", "pending", "pending_view", "view", "numpy", "detach", "operand"])
def test_updates_in_place_never_change_another_value(keep: str) -> None:
    p, host = torch.arange(64.0, device=DEVICE), torch.arange(64.0)
    for i in range(4):
        if keep == "clone":
            kept, expected = p.clone(), host.clone()
        elif keep == "cpu":
            kept, expected = p.cpu(), host.clone()
        elif keep == "numpy":
            kept, expected = torch.from_numpy(p.cpu().numpy()), host.clone()
        elif keep == "pending":
            kept, expected = p * 3, host * 3
        elif keep == "pending_view":
            kept, expected = p[::2] + 0, host[::2] + 0
        elif keep == "operand":
            kept, expected = torch.cat([p, p]), torch.cat([host, host])
        elif keep == "view":
            kept, expected = p[3:7], host[3:7]  # follows the update
        else:
            kept, expected = p.detach(), host.detach()  # follows the update
        update(p, i)
        update(host, i)
        torch_pjrt.sync(p)
        torch.testing.assert_close(kept.cpu(), expected)
        torch.testing.assert_close(p.cpu(), host)
        torch.testing.assert_close(kept.cpu(), expected)


def test_host_memory_given_in_is_not_shared() -> None:
    host = torch.arange(64.0)
    x = host.to(DEVICE)
    host.fill_(-1)
    assert x.sum().item() == 2016
    x.add_(1)
    torch_pjrt.sync(x)
    assert host.unique().tolist() == [-1]
    back = x.cpu()
    back.zero_()
    assert x.sum().item() == 2016 + 64


@pytest.mark.host_memory
@pytest.mark.compiled
def test_an_update_reuses_its_memory() -> None:
    n = 64 << 20
    p = torch.zeros(n, dtype=torch.int8, device=DEVICE)

    p.add_(1)
    torch_pjrt.sync(p)
    growth(lambda: p.add_(1))
    assert growth(lambda: p.add_(1)) < n // 2
    old = p.clone()
    assert growth(lambda: p.add_(1)) > n // 2  # somebody still holds the old value
    assert p[:3].cpu().tolist() == [4, 4, 4]
    assert old[:3].cpu().tolist() == [3, 3, 3]


def test_swapped_buffers() -> None:
    a, b = ready(1.0, 2.0), ready(3.0, 4.0)
    for _ in range(5):
        a.data, b.data = b.data, a.data
        a.add_(10)
        torch_pjrt.sync()
    c, d = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    for _ in range(5):
        c.data, d.data = d.data, c.data
        c.add_(10)
    assert (a.cpu().tolist(), b.cpu().tolist()) == (c.tolist(), d.tolist())


def test_two_storages_that_trade_values() -> None:
    a, b = ready(*range(32)), ready(*range(32, 64))
    for _ in range(5):
        old = a.clone()
        a.copy_(b)
        b.copy_(old)
        torch_pjrt.sync()
    assert a[0].item() == 32
    assert b[0].item() == 0


# --- big graphs -------------------------------------------------------------------------------------------------------


def test_ten_thousand_ops_without_a_read() -> None:
    x = ready(0.0)
    with counted() as c:
        y = x
        for _ in range(10_000):
            y = y + 1
        assert y.item() == 10_000
    assert c.nodes <= 10_000


def test_ten_thousand_updates_without_a_read() -> None:
    x = ready(0.0)
    for _ in range(10_000):
        x.add_(1)
    assert x.item() == 10_000


def test_a_deep_graph_that_is_dropped() -> None:
    x = ready(0.0)
    y = x
    for _ in range(100_000):
        y = y + 1
    with counted_executions() as executions:
        del y
        gc.collect()
    assert executions() == 0
    assert (x + 1).item() == 1


@contextmanager
def counted_executions() -> Iterator[Callable[[], int]]:
    before = torch_pjrt.metrics()["executions"]
    yield lambda: torch_pjrt.metrics()["executions"] - before


# --- threads ----------------------------------------------------------------------------------------------------------


def run_in_threads(work: Callable[[int], None], count: int = 4) -> None:
    errors: list[BaseException] = []

    def body(i: int) -> None:
        try:
            work(i)
        except BaseException as error:  # passed to the test's thread
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "a deadlock"
    if errors:
        raise errors[0]


def test_threads_record_and_read() -> None:
    shared = ready(*range(8))

    def work(i: int) -> None:
        mine = torch.zeros(8, device=DEVICE)
        for k in range(30):
            mine += shared * i
            if k % 3 == 0:
                assert mine[1].item() == i * (k + 1)
            if k % 10 == 0:
                gc.collect()
        assert mine.tolist() == [30.0 * i * v for v in range(8)]

    run_in_threads(work)


def test_threads_read_one_pending_tensor() -> None:
    for _ in range(10):
        x = ready(1, 2, 3)
        y = (x * 2).exp().log() + x
        run_in_threads(lambda i, y=y: torch.testing.assert_close(y.cpu(), torch.tensor([3.0, 6, 9])))  # type: ignore[misc]


def test_a_thread_writes_what_another_reads() -> None:
    """The program's race decides which value is read; the test requires one of them and no failure."""
    x = ready(*[0.0] * 16)

    def work(i: int) -> None:
        for _ in range(100):
            if i % 2:
                x.add_(1)
            else:
                assert len(set(x.tolist())) == 1

    run_in_threads(work)
    assert x.tolist() == [200.0] * 16


def test_threads_train() -> None:
    def work(i: int) -> None:
        model = torch.nn.Linear(4, 1).to(DEVICE)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(2, 4, device=DEVICE)
        first = last = 0.0
        for k in range(10):
            opt.zero_grad()
            loss = (model(x) - 3).square().mean()
            loss.backward()
            opt.step()
            last = loss.item()
            first = last if k == 0 else first
        assert last < first

    run_in_threads(work, 2)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_leave_everything_usable() -> None:
    x = ready(1, 2, 3)
    pending = x * 2
    for _ in range(3):
        with pytest.raises(RuntimeError):
            pending + torch.ones(2, device=DEVICE)
        with pytest.raises(RuntimeError):
            pending.add_(torch.ones(4, 3, device=DEVICE))
        with pytest.raises(RuntimeError):
            torch.ones(3, dtype=torch.int64, device=DEVICE).add_(1.5)
    assert pending._version == 0
    assert pending.tolist() == [2, 4, 6]


def test_an_exception_in_backward() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            raise ValueError("on purpose")

    x = ready(1.0, 2.0).requires_grad_()
    with pytest.raises(ValueError, match="on purpose"):
        Fails.apply(x).sum().backward()
    (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 4]


@pytest.mark.compiled
def test_an_optimizer_step_starts_the_step() -> None:
    """Each training step is one execution of the same graph, however rarely the loss is read."""
    layer = torch.nn.Linear(8, 8).to("pjrt")
    optimizer = torch.optim.Adam(layer.parameters())
    x = torch.randn(4, 8).to("pjrt")
    torch_pjrt.reset_metrics()
    for _ in range(20):
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        optimizer.step()
    metrics = torch_pjrt.metrics()
    assert metrics["executions"] == 20
    assert metrics["graphs_compiled"] == 1


def test_a_graph_without_reads_is_cut() -> None:
    y = torch.zeros(2).to("pjrt")
    torch_pjrt.reset_metrics()
    for _ in range(20_500):
        y = y + 1
    assert torch_pjrt.metrics()["syncs_by_cause"]["a graph long without a read"] == 1
    assert y.tolist() == [20_500.0, 20_500.0]


def test_a_shape_that_depends_on_data() -> None:
    """Without a size these calls read data; their C++ signatures take a size, not a dtype."""
    x, repeats = torch.arange(3.0), torch.tensor([1, 0, 3])
    for size in (None, 4):
        result = torch.repeat_interleave(x.to(DEVICE), repeats.to(DEVICE), output_size=size)
        assert torch.equal(result.cpu(), torch.repeat_interleave(x, repeats))
    assert torch.equal(torch.repeat_interleave(repeats.to(DEVICE)).cpu(), torch.repeat_interleave(repeats))
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
