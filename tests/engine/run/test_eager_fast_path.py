"""Calls whose next scalar is read soon run on the eager fast path (Note [Eager fast path])."""

from __future__ import annotations

import random
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


def parts(device: str) -> list[float]:
    """Writes to a part of a tensor go into its memory, in any strides; others may hold the tensor or its old value."""
    x, y = torch.arange(12.0, dtype=torch.float64).view(3, 4).to(device), torch.ones(4, dtype=torch.float64).to(device)
    seen = []
    for i in range(24):
        x[i % 3] = i
        seen.append(x.sum().item())
        x[:, i % 4] = 0.5
        old = x * 1
        x.t()[1:3].add_(y[:3])
        seen += [old.sum().item(), x.argmax().item()]
        x[0].copy_(x[1])
        x.diagonal().mul_(2)
        seen += [x[0].dot(y).item(), x[1, 2].item()]
        x[1:, ::2] = y[:2].expand(2, 2)
        x[2] = torch.arange(4) * i
        seen += [x.max().item(), x.view(-1)[5:9].prod().item()]
    return [*seen, *map(float, x.cpu().flatten())]


def parts_of_other_dtypes(device: str) -> list[float]:
    counts, half = torch.arange(6).to(device), torch.arange(12.0).to(device, torch.bfloat16).view(4, 3)
    z, mask = torch.ones(3, 2, dtype=torch.complex128).to(device), torch.zeros(4, dtype=torch.bool).to(device)
    seen: list[float] = []
    for i in range(24):
        counts[i % 6] += i
        seen.append(counts.sum().item())
        half[:, i % 3] = counts[:4]
        half[i % 4].mul_(0.5)
        seen.append(half.sum().item())
        z.real[i % 3] = i
        z[0].copy_(z[1].conj())
        z[2].imag.add_(1)
        seen.append(z.sum().abs().item())
        mask[i % 4] = i % 3
        counts[:3].div_(2, rounding_mode="floor")
        seen += [float(mask.any()), counts[2].item()]
    return seen


def part_of(tensors: list[torch.Tensor], rows: int, columns: int, draw: random.Random) -> torch.Tensor:
    x = draw.choice(tensors)
    if draw.random() < 0.3:
        return x.t()[:columns, :rows].t()
    row, column = draw.randint(0, x.size(0) - rows), draw.randint(0, x.size(1) - columns)
    return x[row : row + rows, column : column + columns]


WRITES: list[Callable[[torch.Tensor, torch.Tensor, int], object]] = [
    lambda to, made, _: to.copy_(made),
    lambda to, _, number: to.fill_(number),
    lambda to, made, number: to.add_(made, alpha=number).clamp_(-9, 9),
    lambda to, _, number: to.sub_(0.5).copy_(torch.full(to.shape, number)),
    lambda to, *_: to.neg_(),
    lambda to, *_: to.zero_(),
]


def drawn(device: str) -> list[float]:
    """Random programs of short intervals: views, writes to them and reads, in one order for both devices."""
    draw = random.Random(0)
    seen: list[float] = []
    for _ in range(40):
        tensors = [torch.arange(12.0, dtype=torch.float64).view(3, 4).to(device).div(draw.randint(1, 9)) for _ in "ab"]
        for _ in range(40):
            rows, columns = draw.randint(1, 3), draw.randint(1, 3)
            to = part_of(tensors, rows, columns, draw)
            made = part_of(tensors, rows, columns, draw).clone()
            if draw.random() < 0.3:
                made = part_of(tensors, 1, 1, draw).expand(rows, columns).abs()
            draw.choice(WRITES)(to, made, draw.randint(-3, 3))
            if draw.random() < 0.2:
                tensors[draw.randrange(2)] = draw.choice(tensors).clone().mul(0.5)
            if rows * columns == 9 and len(tensors) < 4:
                tensors.append(to)
            if draw.random() < 0.6:
                seen += [draw.choice(tensors)[0, 0].item(), draw.choice(tensors).sum().item()]
    return seen


LOOPS: list[Loop] = [history, held, pending, dtypes, shared, sizes, parts, parts_of_other_dtypes, drawn]


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
    assert (metrics["executions"], metrics["graphs_interpreted"], metrics["nodes_executed"]) == (1, 1, 1)
    assert metrics["syncs"] == 1
    assert "leaf" in torch_pjrt.to_graph(lambda: x.sum())  # a trace still has nodes


def test_a_write_to_a_part_makes_no_graph_and_no_copy() -> None:
    x, number = torch.ones(100, 8).to(DEVICE), torch.ones((), device=DEVICE)
    for i in range(10):
        x[i] = 2
        x[:, 3].copy_(number)
        x[0, 0].item()
    place = x.data_ptr()
    x[1] = 3
    x[:, 3].copy_(number)
    assert not torch_pjrt._C.is_pending(x)
    assert x.data_ptr() == place
    assert x[1].tolist() == [3, 3, 3, 1, 3, 3, 3, 3]


def test_autograd_sees_a_write_to_a_part() -> None:
    for _ in range(20):
        weight = torch.ones(4, device=DEVICE, requires_grad=True)
        x = torch.ones(3, 4, device=DEVICE)
        x[0] = weight * 2
        assert x.sum().item() == 16
        (x * x).sum().backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [8, 8, 8, 8]
        saved = x.detach().clone()
        loss = (saved * weight).sum()
        saved[1] = 5
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_an_interval_that_becomes_long_is_recorded() -> None:
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
    assert torch_pjrt.metrics()["graphs_interpreted"] == 0


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
