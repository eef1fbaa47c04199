"""Iterations of a loop that does not read its results: the work that each iteration recorded is started when it
ends."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

import torch_pjrt

ROUNDS = 12


def network() -> nn.Module:
    torch.manual_seed(0)
    widths = [12, 40, 40, 40, 40, 5]
    layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers)


def batches(count: int = ROUNDS) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(1)
    return ((torch.randn(16, 12), torch.randint(5, (16,))) for _ in range(count))


@pytest.fixture(autouse=True)
def _nothing_pending() -> None:
    torch.pjrt.synchronize()
    torch_pjrt.reset_metrics()


def test_evaluation_runs_while_it_is_recorded() -> None:
    net, expected = network().to("pjrt"), network()
    correct, right = torch.zeros((), dtype=torch.long, device="pjrt"), 0
    with torch.no_grad():
        for x, y in batches():
            right += int((expected(x).argmax(1) == y).sum())
            x, y = x.to("pjrt"), y.to("pjrt")
            correct += (net(x).argmax(1) == y).sum()
    metrics = torch_pjrt.metrics()
    assert metrics["executions"] == ROUNDS - 1
    assert metrics["syncs_by_cause"] == {"a new iteration of a loop": ROUNDS - 1}
    assert metrics["graphs_compiled"] <= 2  # the first iteration begins with zeros
    assert correct.item() == right


def test_results_in_a_list() -> None:
    net, expected = network().to("pjrt"), network()
    with torch.no_grad():
        results = [net(x.to("pjrt")) for x, _ in batches()]
        assert torch_pjrt.metrics()["executions"] == ROUNDS - 1
        torch.testing.assert_close(torch.cat(results).cpu(), torch.cat([expected(x) for x, _ in batches()]))
    assert torch_pjrt.metrics()["graphs_compiled"] <= 2


def test_batches_are_let_go() -> None:
    """Memory does not grow with the number of iterations."""
    net = nn.Sequential(*[nn.Linear(1 << 10, 1 << 10, bias=False) for _ in range(8)]).to("pjrt")
    torch.pjrt.synchronize()
    peaks = []
    for count in (40, 120):
        torch.pjrt.reset_peak_memory_stats()
        total = torch.zeros((), device="pjrt")
        with torch.no_grad():
            for _ in range(count):
                x = torch.ones(64, 1 << 10)  # 256 KiB
                total += net(x.to("pjrt")).sum()
        total.item()
        peaks.append(torch.pjrt.max_memory_allocated())
    assert peaks[1] < peaks[0] + (8 << 20), peaks


def test_accumulated_gradients() -> None:
    net, expected = network().to("pjrt"), network()
    compiled = []
    for module, device in ((net, "pjrt"), (expected, "cpu")):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(4):
            for x, y in batches(3):
                nn.functional.cross_entropy(module(x.to(device)), y.to(device)).backward()
            optimizer.step()
            optimizer.zero_grad()
            compiled.append(torch_pjrt.metrics()["graphs_compiled"])
    assert compiled[1] == compiled[3]
    torch.testing.assert_close([p.cpu() for p in net.parameters()], list(expected.parameters()))


def test_what_a_module_moves_is_no_round() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(network() for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                mask = torch.ones(16, 12).tril_()
                x = layer(x * mask.to(x.device)).repeat(1, 3)[:, :12]
            return x

    net, x = Masked().to("pjrt"), torch.randn(16, 12).to("pjrt")
    with torch.no_grad():
        net(x).cpu()
    assert torch_pjrt.metrics()["executions"] == 1


def test_a_running_sum_beside_training_stays() -> None:
    net = network().to("pjrt")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    total = torch.zeros((), device="pjrt")
    for x, y in batches():
        loss = nn.functional.cross_entropy(net(x.to("pjrt")), y.to("pjrt"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    assert torch_pjrt.metrics()["executions"] == ROUNDS
    assert 0 < total.item() < 3 * ROUNDS


def test_steps_without_an_optimizer() -> None:
    """The read after 100 iterations runs segments of equal calls, which share a few programs."""
    net, expected = network().to("pjrt"), network()
    before = torch_pjrt.metrics()["graphs_compiled"]
    for module, device in ((net, "pjrt"), (expected, "cpu")):
        x = torch.linspace(-1, 1, 16 * 12).view(16, 12).to(device)
        y = torch.ones(16, 5).to(device)
        for _ in range(100):
            loss = (module(x) - y).square().mean()
            module.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in module.parameters():
                    p -= 0.1 * p.grad
    torch.testing.assert_close([p.cpu() for p in net.parameters()], list(expected.parameters()), rtol=1e-4, atol=1e-5)
    assert torch_pjrt.metrics()["graphs_compiled"] - before <= 8


@pytest.mark.parametrize("moves", [True, False], ids=["moves", "resident"])
@pytest.mark.parametrize("foreach", [True, False], ids=["foreach", "each"])
def test_moving_average_of_parameters(foreach: bool, moves: bool) -> None:
    """The average holds no older versions of the parameters, and is one more program for each step."""
    width = 256
    nets = [nn.Sequential(*[nn.Linear(width, width) for _ in range(8)]) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    resident = torch.ones(16, width, device="pjrt")
    averages, peaks, counts = [], [], []
    for net, device in zip(nets, ("pjrt", "cpu"), strict=True):
        net.to(device)
        average = AveragedModel(net, avg_fn=None if foreach else get_ema_avg_fn(0.9))
        if foreach:
            average.multi_avg_fn = get_ema_multi_avg_fn(0.9)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(16):
            x = torch.ones(16, width).to(device) if moves else resident.to(device)
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update_parameters(net)
            if device == "pjrt":
                metrics = torch_pjrt.metrics()
                counts.append((metrics["graphs_compiled"], metrics["executions"]))
                peaks.append(torch.pjrt.max_memory_allocated())
        averages.append([p.detach().cpu() for p in average.parameters()])
    assert counts[-1][0] == counts[4][0], counts
    assert counts[-1][1] - counts[4][1] == 2 * 11, counts
    assert peaks[-1] == peaks[4], peaks
    torch.testing.assert_close(averages[0], averages[1])


def test_another_thread_that_moves_data_starts_nothing() -> None:
    net = network().to("pjrt")
    torch.pjrt.synchronize()
    torch_pjrt.reset_metrics()
    moved: list[torch.Tensor] = []

    def prefetch() -> None:
        for x, _ in batches(1):
            moved.append(x.to("pjrt"))

    y = torch.zeros(16, 12, device="pjrt")
    for _ in range(3):
        with torch.no_grad():
            y = net(y).repeat(1, 3)[:, :12]
        thread = threading.Thread(target=prefetch)
        thread.start()
        thread.join()
    assert torch_pjrt.metrics()["executions"] == 0
    assert y.cpu().isfinite().all()


def test_a_round_that_reads_what_is_there() -> None:
    """Samplers read a list of times this way."""
    net = network().to("pjrt")
    times = torch.arange(ROUNDS).to("pjrt")
    x = torch.zeros(16, 12, device="pjrt")
    with torch.no_grad():
        for i in range(ROUNDS):
            x = x + net(x).repeat(1, 3)[:, :12] * times[i].item()
    metrics = torch_pjrt.metrics()
    assert metrics["syncs_by_cause"] == {"a new iteration of a loop": ROUNDS - 1}
    assert metrics["graphs_compiled"] <= 3
    assert x.cpu().isfinite().all()


def test_moving_a_data_set_starts_nothing() -> None:
    pending = copy.deepcopy(network().to("pjrt"))(torch.ones(16, 12, device="pjrt"))
    torch_pjrt.reset_metrics()
    data = [(x.to("pjrt"), y.to("pjrt")) for x, y in batches()]
    assert torch_pjrt.metrics()["executions"] == 0
    assert len(data) == ROUNDS
    assert pending.cpu().isfinite().all()
