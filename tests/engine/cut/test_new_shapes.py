"""Known graphs with new shapes: what is new is compiled once for all layers that are alike."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest
import torch
from torch import nn

import torch_pjrt

DEVICE = "pjrt"


def compiled(report: torch_pjrt.report.Report) -> list[int]:
    """The sizes of the programs."""
    return sorted(graph.nodes for graph in report.graphs if graph.source == "compiled")


class Decoder(nn.Module):
    """Layers with a cache each, to which every round appends."""

    def __init__(self, layers: int = 9) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, h: torch.Tensor, caches: list[torch.Tensor]) -> torch.Tensor:
        for i in range(self.layers):
            caches[i] = torch.cat([caches[i], h])
            h = (h @ caches[i].T).softmax(-1) @ caches[i]
            for _ in range(4):
                h = (h * 0.9 + 0.1).tanh()
        return h


def generate(device: str, steps: int) -> torch.Tensor:
    decoder = Decoder()
    h = torch.linspace(0, 1, 8).reshape(1, 8).to(device)
    caches = [torch.full((1, 8), i / 9).to(device) for i in range(decoder.layers)]
    for _ in range(steps):
        h = decoder(h, caches)
        if device == DEVICE:
            torch_pjrt.sync(h)
    return torch.cat([h, *caches]).cpu()


def test_what_grows_in_each_layer_is_compiled_once_for_all_of_them() -> None:
    with torch_pjrt.explain() as report:
        torch.testing.assert_close(generate(DEVICE, 12), generate("cpu", 12))
    assert sum(nodes > 30 for nodes in compiled(report)) == 1, report  # the first round
    with torch_pjrt.explain() as report:
        generate(DEVICE, 14)
    assert compiled(report) == [1, 5, 5], report  # what is read at the end; the attention over 14 rows and over 15


class Classifier(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(x)).mean(1))


def train(model: nn.Module, lengths: list[int]) -> list[float]:
    device = next(model.parameters()).device
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    for i, length in enumerate(lengths):
        torch.manual_seed(i)
        x, y = torch.randint(50, (4, length)).to(device), torch.randint(3, (4,)).to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_step_of_another_length_compiles_a_layer() -> None:
    torch.manual_seed(0)
    model = Classifier(layers=6)
    moved = copy.deepcopy(model).to(DEVICE)
    lengths = [8, 8, 8, 12, 9, 8, 12, 9]
    with torch_pjrt.explain() as report:
        torch.testing.assert_close(train(moved, lengths), train(model, lengths), rtol=1e-4, atol=1e-5)
    whole = max(compiled(report))
    with torch_pjrt.explain() as report:
        train(moved, [*lengths, 10, 8, 10])
    new = sum(compiled(report))
    assert 0 < new * 4 < whole, report


def test_the_last_batch_is_smaller() -> None:
    """Evaluation, with a graph that has no layers that are alike: as before, each shape is one program."""
    torch.manual_seed(0)
    model = nn.Sequential(*(m for i in range(8, 40) for m in (nn.Linear(i, i + 1), nn.ReLU(), nn.LayerNorm(i + 1))))
    model = model.double()
    moved = copy.deepcopy(model).to(DEVICE)
    for rows in (4, 4, 3, 4, 3):
        x = torch.randn(rows, 8).double()
        torch_pjrt.reset_metrics()
        with torch.no_grad():
            torch.testing.assert_close(moved(x.to(DEVICE)).cpu(), model(x), rtol=1e-4, atol=1e-5)
        assert torch_pjrt.metrics()["executions"] == 1


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(40):
        x = (x + 1).sin()
    return x


def positions(device: str, n: int) -> torch.Tensor:
    """Writes rows of another length in each call to columns of a larger tensor, between calls that are known."""
    before = chain(torch.zeros(2, 4, device=device))
    places = torch.zeros(3, 2, 12, dtype=torch.int64, device=device)
    for row in range(2):
        values = torch.arange(3 * n, device=device).view(3, n) + (before > 0).sum()
        places[:, row].index_copy_(1, torch.arange(n, device=device), values)
        places[:, row] += 1
    after = chain(before + places.sum())
    return torch.cat([places.flatten().double(), after.flatten().double()]).cpu()


def test_what_is_written_to_a_view_goes_from_part_to_part() -> None:
    """The result of such a call has the view's strides, its buffer has not."""
    for n in (3, 3, 5, 7, 6, 9, 5):
        torch_pjrt.reset_metrics()
        torch.testing.assert_close(positions(DEVICE, n), positions("cpu", n))
    assert torch_pjrt.metrics()["syncs_by_cause"].get("new shapes in a known graph", 0) > 0


def random_program(seed: int, n: int, device: str) -> list[torch.Tensor]:
    """The same calls for every n: on tensors of n rows, on others, on integers, in place and through views."""
    rng = random.Random(seed)
    fixed = [torch.linspace(-1, 1, 32, device=device).view(4, 8)]
    rows = [torch.linspace(0, 1, 8 * n, device=device).view(n, 8)]
    places = torch.zeros(3, 2, 8, dtype=torch.int64, device=device)
    index = [torch.arange(n, device=device)]

    def a(tensors: list[torch.Tensor]) -> torch.Tensor:
        return tensors[rng.randrange(max(0, len(tensors) - 4), len(tensors))]

    def placed() -> None:
        first = min(n, 8)
        values = torch.arange(3 * first, device=device).view(3, first) + a(index).sum()
        places[:, rng.randrange(2)].index_copy_(1, index[0][:first].clone(), values)

    calls: list[Callable[[], object]] = [
        lambda: fixed.append((a(fixed) * 0.9 + 0.1).tanh()),
        lambda: fixed.append(a(fixed) + a(rows).sum(0) * 0.1),
        lambda: fixed.append(a(fixed) + places.sum() % 5 * 0.01),
        lambda: a(fixed)[:, ::2].mul_(0.9),
        lambda: a(fixed).diagonal().mul_(0.5),
        lambda: rows.append((a(rows) * 0.7 - 0.1).sin()),
        lambda: rows.append((a(rows) @ a(fixed).T @ a(fixed)).tanh()),
        lambda: rows.append(torch.cat([a(rows)[:1], a(rows)[1:] * 0.5])),
        lambda: a(rows)[rng.randrange(2) :].add_(0.01),
        lambda: a(rows).select(1, rng.randrange(8)).copy_(a(rows)[:, 0]),
        lambda: index.append((a(index) * 2 + places.max()) % 97),
        lambda: places[:, rng.randrange(2)].add_(a(index).max()),
        lambda: places.view(-1)[rng.randrange(5) :: 3].add_(1),
        placed,
    ]
    for _ in range(rng.randint(50, 110)):
        rng.choice(calls)()
    return [*fixed[-3:], *rows[-3:], *index[-3:], places]


@pytest.mark.parametrize("seed", [1, 2, 4, 5, 7])  # graphs that are cut
def test_random_programs_of_many_sizes(seed: int) -> None:
    torch_pjrt.reset_metrics()
    for n in (5, 5, 7, 6, 9, 2, 5):
        found = random_program(seed, n, DEVICE)
        if n % 2:
            torch_pjrt.sync()
        for ours, cpus in zip(found, random_program(seed, n, "cpu"), strict=True):
            torch.testing.assert_close(ours.cpu(), cpus, rtol=1e-3, atol=1e-3)
    assert torch_pjrt.metrics()["syncs_by_cause"].get("new shapes in a known graph", 0) > 0
