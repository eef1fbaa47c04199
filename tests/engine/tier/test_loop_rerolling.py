"""Graphs of many equal iterations: one program runs again and again (Note [Loop rerolling])."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import nn

import torch_pjrt
from tests import fresh

pytestmark = pytest.mark.compiled

DEVICE = "pjrt"
CAUSE = "iterations of a loop"


def power_iteration(device: str) -> torch.Tensor:
    a = torch.arange(400.0).reshape(20, 20).cos().to(device)
    v = torch.ones(20).to(device)
    for _ in range(200):
        v = a @ v
        v = v / v.norm()
    return v


def sampler(device: str) -> torch.Tensor:
    """Scalars and views differ in each iteration; a weight is shared by all."""
    weight = torch.arange(64.0).reshape(8, 8).sin().to(device)
    alphas = torch.linspace(0.9, 0.999, 120).to(device)
    x = torch.ones(4, 8).to(device)
    for t in reversed(range(120)):
        noise = torch.tanh(x @ weight + t / 120)
        x = (x - (1 - alphas[t]) * noise) / alphas[t].sqrt()
    return x


def history(device: str) -> torch.Tensor:
    """The result of each iteration is held."""
    x = torch.linspace(0, 1, 6).to(device)
    kept = []
    for _ in range(150):
        x = torch.sin(x * 0.9) + x.mean() * 0.1
        kept.append(x)
    return torch.stack(kept)


def nested(device: str) -> torch.Tensor:
    x = torch.linspace(0, 1, 6).to(device)
    for _ in range(20):
        for _ in range(5):
            x = (x * 1.5).sin() + 0.1
        x = x - x.mean()
    return x


def odd_calls(device: str) -> torch.Tensor:
    """Each iteration has a unique call: some run between segments, one can run before them."""
    x, table = torch.linspace(0, 1, 40).to(device), torch.arange(40.0).to(device)
    for i in range(30):
        x = (x * 1.5).sin() + torch.roll(table, i) * 0.01
        for _ in range(3):
            x = (x + 0.5).cos() * 1.1
        x = torch.roll(x, i)
    return x


def evaluation(device: str) -> torch.Tensor:
    """The iterations don't depend on each other."""
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4), nn.LogSoftmax(1))
    with torch.no_grad():
        for i, parameter in enumerate(net.parameters()):
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape).mul(0.3 + i).sin())
    net, data = net.to(device), torch.arange(3200.0).reshape(400, 8).cos().to(device)
    with torch.no_grad():
        return torch.cat([net(data[i : i + 4]) for i in range(0, 400, 4)])


def rows_of_a_result(device: str) -> torch.Tensor:
    """The iterations read nothing but rows of an earlier result."""
    rows = (torch.arange(1600.0).reshape(200, 8).to(device) * 0.1).sin()
    return torch.stack([row.softmax(0).cumsum(0) for row in rows])


def gradients_of_a_loop_that_reads(device: str) -> torch.Tensor:
    """Each iteration of the backward reads values of its forward iteration that nobody else holds."""
    weight = torch.arange(16.0).reshape(4, 4).sin().mul(0.3).to(device).requires_grad_()
    x = torch.linspace(0, 1, 12).reshape(3, 4).to(device)
    for _ in range(150):
        x = x + torch.tanh(x @ weight) * 0.1 - x.pow(3) * 0.05
        assert x.abs().max().item() < 100
    x.square().sum().backward()
    return weight.grad


@pytest.mark.parametrize(
    "loop",
    [
        power_iteration,
        sampler,
        history,
        nested,
        odd_calls,
        evaluation,
        rows_of_a_result,
        gradients_of_a_loop_that_reads,
    ],
)
def test_values(loop: Callable[[str], torch.Tensor]) -> None:
    for _ in range(2):
        with torch_pjrt.explain() as report:
            result = loop(DEVICE).cpu()
        torch.testing.assert_close(result, loop("cpu"), rtol=1e-4, atol=1e-4)
    assert any(graph.cause == CAUSE for graph in report.graphs)
    assert all(graph.source == "memory" for graph in report.graphs)


def random_loop(device: str, seed: int) -> list[torch.Tensor]:
    """Iterations write in place and through views of three tensors, into a result, and keep some values."""
    choose = random.Random(seed)
    bases = [torch.linspace(0, 1, 12).reshape(3, 4).to(device) for _ in range(3)]
    weight = torch.arange(16.0).reshape(4, 4).sin().mul(0.3).to(device)
    row, transposed, part = bases[0][1], bases[1].t(), bases[2][:, 1:3]
    iterations, calls = (
        choose.randint(40, 60),
        [choose.choices(range(8)) + choose.choices(range(3), k=2) for _ in range(14)],
    )
    kept, written = [], torch.zeros(60, 4).to(device)
    for i in range(iterations):
        for call, a, b in calls:
            if call == 0:
                bases[a].mul_(0.9).add_(bases[b], alpha=0.05)
            elif call == 1:
                bases[a] = torch.tanh(bases[a] @ weight)
            elif call == 2:
                bases[a][i % 3] = bases[b][(i + 1) % 3] * 0.5
            elif call == 3:
                written[i] = bases[a].sum(0)
            elif call == 4:
                row.add_(0.01 * i)
            elif call == 5:
                bases[a] = bases[a].sin() + part.mean()
            elif call == 6 and i % 7 == 0:
                kept.append(bases[a].clone())
            elif call == 7:
                transposed.copy_(bases[b].t().cos())
    return [tensor.cpu() for tensor in (*bases, row, transposed, part, written, *kept)]


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5, 6, 7, 8, 9])  # 2 draws calls that leave little to compute
@pytest.mark.sampled(3)
def test_random_loops(seed: int) -> None:
    torch_pjrt.reset_metrics()
    results = random_loop(DEVICE, seed)
    assert CAUSE in torch_pjrt.metrics()["syncs_by_cause"]
    for result, expected in zip(results, random_loop("cpu", seed), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4)


def test_a_graph_too_large_for_one_program() -> None:
    def calls(device: str) -> torch.Tensor:
        choose = random.Random(0)
        values = [torch.linspace(0, 1, 4).to(device) + i for i in range(4)]
        for _ in range(2500):
            a, b = choose.sample(values[-6:], 2)
            call = choose.randrange(3)
            values.append(a * b.sin() if call == 0 else (a + b).tanh() if call == 1 else a / (b * b + 1))
        return torch.stack(values[-6:])

    torch_pjrt.reset_metrics()
    result = calls(DEVICE).cpu()
    metrics = torch_pjrt.metrics()
    assert metrics["syncs_by_cause"]["a graph too large for one program"] == 1
    assert metrics["executions"] == 2
    torch.testing.assert_close(result, calls("cpu"), rtol=1e-4, atol=1e-4)


def test_a_round_is_compiled_and_not_all_of_them() -> None:
    torch_pjrt.reset_metrics()
    power_iteration(DEVICE).cpu()
    few = torch_pjrt.metrics()
    assert few["graphs_compiled"] <= 4
    assert few["ops_recorded"] >= 600
    with torch_pjrt.explain() as report:
        power_iteration(DEVICE).cpu()
    assert max(graph.nodes for graph in report.graphs) < 120
    assert torch_pjrt.metrics()["graphs_compiled"] == few["graphs_compiled"]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.cell = nn.LSTMCell(6, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        h = c = x.new_zeros(tokens.shape[0], 8)
        outputs = []
        for t in range(tokens.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            outputs.append(h)
        return torch.stack(outputs, 1).square().mean()


def test_gradients_of_a_cell_in_a_loop() -> None:
    torch.manual_seed(0)
    net = Recurrent()
    tokens = torch.randint(11, (3, 60))
    net(tokens).backward()
    expected = {name: parameter.grad for name, parameter in net.named_parameters()}
    net.zero_grad()
    net.to(DEVICE)
    for _ in range(2):
        torch_pjrt.reset_metrics()
        net.zero_grad()
        net(tokens.to(DEVICE)).backward()
        for name, parameter in net.named_parameters():
            torch.testing.assert_close(parameter.grad.cpu(), expected[name], rtol=1e-4, atol=1e-6)
    metrics = torch_pjrt.metrics()
    assert metrics["syncs_by_cause"][CAUSE] > 10
    assert metrics["graphs_compiled"] <= 2  # scalars became inputs
    assert metrics["host_fallbacks"] == {}


def test_random_numbers_are_those_of_one_graph() -> None:
    def walk(iterations: int) -> torch.Tensor:
        torch.manual_seed(3)
        x = torch.zeros(50, device=DEVICE)
        for i in range(iterations):
            x = x - 0.1 * (x**3 - x) + 0.1 * torch.randn_like(x)
            if i % 8 == 7 and iterations == 160:
                torch_pjrt.sync(x)
        return x.cpu()

    expected = walk(160)
    torch.manual_seed(3)
    x = torch.zeros(50, device=DEVICE)
    for _ in range(160):
        x = x - 0.1 * (x**3 - x) + 0.1 * torch.randn_like(x)
    with torch_pjrt.explain() as report:
        result = x.cpu()
    assert report.graphs[0].cause == CAUSE
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_layers_of_a_network_stay_one_program() -> None:
    net = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.LayerNorm(8)) for _ in range(100))).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), foreach=False)
    for _ in range(2):
        optimizer.zero_grad()
        with torch_pjrt.explain() as report:
            net(torch.ones(4, 8, device=DEVICE)).sum().backward()
            optimizer.step()
        assert not any(graph.cause == CAUSE for graph in report.graphs)


@pytest.mark.parametrize("part", [lambda w, i: w[i], lambda w, i: w[i * 3 : i * 3 + 4], lambda w, i: w.narrow(1, i, 2)])
def test_the_gradient_of_another_part_is_the_same_program(part: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
    w = torch.randn(30, 10, requires_grad=True)
    on_device = w.detach().to(DEVICE).requires_grad_()
    compiled = []
    for i in range(8):
        torch_pjrt.reset_metrics()
        for x in (w, on_device):
            x.grad = None
            part(x, i).square().sum().backward()
        assert w.grad is not None
        assert on_device.grad is not None
        torch.testing.assert_close(on_device.grad.cpu(), w.grad)
        compiled.append(torch_pjrt.metrics()["graphs_compiled"])
    assert compiled[3:] == [0] * 5


# Loops over the elements and rows of tensors, as reference code has them.


def test_a_view_is_not_written_back_to_itself() -> None:
    """`x[i] += y` calls x[i].__iadd__(y), then x.__setitem__(i, result)."""
    x, y = torch.zeros(8, device="pjrt"), torch.arange(8.0, device="pjrt")
    version = x._version
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    for i in range(8):
        x[i] += y[i]
    assert torch_pjrt.metrics()["ops_recorded"] == 8
    assert x._version == version + 16  # as on the CPU
    assert torch.equal(x, y)
    assert torch_pjrt.metrics()["graphs_compiled"] == 1


@pytest.mark.older_xla
def test_many_writes_compile_in_reasonable_time() -> None:
    """XLA:CPU's newer emitters take 25 ms for each write, its older ones 3."""
    x, y = torch.zeros(300, 4, device="pjrt"), torch.rand(300, 4)
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    for i in range(300):
        x[i] = y[i].to("pjrt") * 2 + i
    torch.testing.assert_close(x.cpu(), y * 2 + torch.arange(300.0)[:, None])
    assert torch_pjrt.metrics()["compile_seconds"] < 6  # 1 on two quiet cores; 8 with the newer emitters


OFF = """
import torch, torch_pjrt
x = torch.ones(20).to("pjrt")
with torch_pjrt.explain() as report:
    for _ in range(120):
        x = (x * 1.5).sin() + x.norm()
    x.cpu()
print(any(graph.cause == "iterations of a loop" for graph in report.graphs))
"""


def test_it_can_be_switched_off(server: fresh.Server) -> None:
    """For ./dev bench mechanisms, which names what each mechanism is for."""
    without = ("", "eager_fast_path,loop_rerolling", "loop_rolling")
    on, off, wrong = server.ends(
        *[fresh.Job(OFF, environment={"TORCH_PJRT_COMPILE": "first", "TORCH_PJRT_WITHOUT": names}) for names in without]
    )
    assert (on.stdout.split(), off.stdout.split()) == (["True"], ["False"])
    assert "TORCH_PJRT_WITHOUT: 'loop_rolling' is no mechanism" in wrong.stderr
