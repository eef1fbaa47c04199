"""The invariant part of interpreted runs is planned once; the plugin gets no memory that only calls read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import torch_pjrt
from tests.engine.tier.conftest import counts
from torch_pjrt import _C

pytestmark = pytest.mark.host_memory


class Made:
    plans = buffers = 0


@contextmanager
def made() -> Iterator[Made]:
    """Counts the graphs planned in the block, and the buffers that the plugin got."""
    torch_pjrt.sync()
    before = _C._calls_counts()
    result = Made()
    yield result
    after = _C._calls_counts()
    result.plans = after["plans_made"] - before["plans_made"]
    result.buffers = after["buffers_handed_over"] - before["buffers_handed_over"]


class Training:
    def __init__(self, device: str, width: int, **how: object) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width)]
        self.net = torch.nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), **how)
        self.x = torch.linspace(-1, 1, 4 * width).reshape(4, width).to(device)

    def step(self) -> float:
        loss = self.net(self.x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


@pytest.mark.parametrize("foreach", [True, False])
def test_a_training_loop_tells_the_plugin_nothing(foreach: bool) -> None:
    on_cpu, on_device = (Training(device, 9 + foreach, foreach=foreach) for device in ("cpu", "pjrt"))
    with made() as first:
        losses = [on_device.step() for _ in range(4)]
    assert first.plans >= 2
    with made() as later:
        losses += [on_device.step() for _ in range(10)]
    assert (later.plans, later.buffers) == (0, 0)
    np.testing.assert_allclose(losses, [on_cpu.step() for _ in range(14)], rtol=1e-4)
    for p, q in zip(on_cpu.net.parameters(), on_device.net.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(q.detach().cpu(), p.detach(), rtol=1e-3, atol=1e-4)
    assert counts()[1] == 0


def test_of_what_is_met_once_no_plan_is_kept() -> None:
    """A plan is made in the first run and again in the second; the second one is kept."""
    x = torch.randn(3, 23).to("pjrt")
    with made() as two:
        for _ in range(2):
            (x * 2).exp().cpu()
    with made() as more:
        for _ in range(5):
            (x * 2).exp().cpu()
    assert (two.plans, more.plans) == (2, 0)


def test_a_program_gets_a_buffer_when_it_needs_one() -> None:
    x = torch.randn(5, 29).to("pjrt")
    with made() as interpreted:
        y = x.exp()
        y.sum().item()
    assert interpreted.buffers == 0
    _C.set_compile_policy("first")
    with made() as compiled:
        z = (y + 1).cpu()
    assert compiled.buffers == 1
    with made() as again:
        torch.testing.assert_close((y + 1).cpu(), z)
    assert again.buffers == 0
    torch.testing.assert_close(z, x.cpu().exp() + 1)


def test_calls_and_programs_write_the_same_memory_in_turns() -> None:
    x = torch.arange(40.0).to("pjrt")
    expected = torch.arange(40.0)
    for i in range(6):
        _C.set_compile_policy("first" if i % 2 else "auto")
        x.add_(1)
        expected.add_(1)
        torch_pjrt.sync()
        x.mul_(2)
        expected.mul_(2)
        torch.testing.assert_close(x.cpu(), expected)


def test_what_the_host_sees_is_not_written() -> None:
    """The tensor that a leaf keeps for calls is private, and handed-out tensors are detected."""
    x = torch.arange(1000.0).to("pjrt")
    for i in range(4):
        x.add_(1)
        torch_pjrt.sync()
        seen = np.from_dlpack(x.detach())
        x.add_(1)
        torch_pjrt.sync()
        assert seen[0] == 2 * i + 1
        assert x[0].item() == 2 * i + 2


def test_a_value_that_is_still_held_is_not_written() -> None:
    x = torch.arange(100.0).to("pjrt")
    held = []
    for _ in range(5):
        held.append(x * 1)
        held.append(x.clone())
        x.add_(1)
        x.sum().item()
    assert [int(h[0].item()) for h in held] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_in_and_out_of_inference_mode() -> None:
    """Results of calls in inference mode may be written in place outside of it, like results of programs."""
    x = torch.zeros(30).to("pjrt")
    for i in range(6):
        with torch.inference_mode(mode=i % 2 == 0):
            x.add_(1)
            assert x[3].item() == i + 1
    y = torch.ones(30).to("pjrt").requires_grad_()
    with torch.inference_mode():
        z = y * 2
        z.sum().item()
        z.mul_(2)
        assert z.sum().item() == 120
    (y * 3).sum().backward()
    assert y.grad.sum().item() == 90


def test_memory_is_counted_as_buffers_are() -> None:
    x = torch.ones(1 << 16).to("pjrt")
    (x + 1).sum().item()
    torch_pjrt.sync()
    before = torch.pjrt.memory_allocated()
    kept = [x + i for i in range(4)]
    torch_pjrt.sync()
    assert torch.pjrt.memory_allocated() == before + (4 << 18)
    del kept
    assert torch.pjrt.memory_allocated() == before


def test_two_threads_run_one_graph() -> None:
    failures: list[str] = []

    def run(seed: int) -> None:
        x = torch.full((7, 31), float(seed)).to("pjrt")
        for i in range(60):
            x.add_(1)
            total = (x * 2).sum().item()
            if total != (seed + i + 1) * 2 * 7 * 31:
                failures.append(f"{seed}: {i}, {total}")

    threads = [threading.Thread(target=run, args=(seed,)) for seed in (1, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert counts()[0] >= 100


def test_what_a_kernel_refuses_is_planned_anew() -> None:
    """From then on its call may fail, so no earlier call writes in place; values written before stay correct."""
    x = torch.zeros(6).to("pjrt")
    index = torch.tensor([1, 2]).to("pjrt")
    torch_pjrt.sync()

    def run() -> float:
        x.add_(1)
        return x.index_select(0, index).sum().item()

    assert [run() for _ in range(3)] == [2, 4, 6]
    index.fill_(9)
    torch_pjrt.sync()
    with pytest.raises(IndexError):
        run()
    index.fill_(0)
    assert x.tolist()[0] == 4
    assert run() == 10


def test_a_view_that_kernels_read_is_not_copied() -> None:
    """The kernels see the strides that they would see on the CPU: the profile of a run shows no copy."""

    def run(x: torch.Tensor) -> torch.Tensor:
        return (x[1:, ::2].sin() @ x.t()[:4, 2:]).sum() + x[2].expand(5, 8).cos().sum()

    x = torch.randn(7, 8)
    given = x.to("pjrt")
    for _ in range(3):
        torch.testing.assert_close(run(given).cpu(), run(x))
    pending = run(given)
    with torch.profiler.profile(acc_events=True) as profile:
        pending.item()
    names = {event.key: event.count for event in profile.key_averages()}
    assert names["aten::sin"] == names["aten::cos"] == names["aten::mm"] == 1
    assert "aten::copy_" not in names


def test_a_view_of_what_is_written_keeps_what_it_showed() -> None:
    def run(device: str) -> torch.Tensor:
        x = torch.arange(12.0).reshape(3, 4).to(device)
        shown = []
        for i in range(4):
            top, transposed = x[1:].clone(), x.t() * 1
            late = x[:, 1:3]
            before = late.exp() if i % 2 else late.neg()
            x.add_(x.t().reshape(3, 4))
            x[0].mul_(x[2])
            shown += [top.flatten(), transposed.flatten(), before.flatten(), late.flatten(), x.flatten() % 1e3]
            x.sum().item()
            x.remainder_(7)
        return torch.cat(shown).cpu()

    torch.testing.assert_close(run("pjrt"), run("cpu"))
    assert counts()[0] >= 4


def test_a_refused_call_of_a_view() -> None:
    """Its program gets the view's elements and raises the error."""
    x = torch.arange(40.0).reshape(4, 10).to("pjrt")
    bad = x[1:, 2:].index_select(0, torch.tensor([5], device="pjrt"))
    with pytest.raises(IndexError):
        bad.cpu()
    del bad
    good = x[1:, 2:].index_select(0, torch.tensor([1], device="pjrt"))
    assert good.tolist() == [[22, 23, 24, 25, 26, 27, 28, 29]]
