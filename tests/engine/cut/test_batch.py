"""Batches of ever other tensors: what only moves data is done on the host, the rest is compiled once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

import torch_pjrt

DEVICE = "pjrt"


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()


def compiled() -> int:
    metrics = torch_pjrt.metrics()
    assert metrics["host_fallbacks"] == {}
    return metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"]


def replay(device: str, draw: Callable[[random.Random, list[torch.Tensor]], torch.Tensor]) -> list[float]:
    rng = random.Random(0)
    rows = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(10, 6)
    pieces: list[torch.Tensor] = [row.to(device) for row in rows]
    pieces += list(rows.add(0.5).to(device))  # views of one tensor
    w = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(6, 4).to(device).requires_grad_()
    results = []
    for _ in range(20):
        loss = (draw(rng, pieces) @ w).tanh().square().sum()
        loss.backward()
        assert w.grad is not None
        results += [loss.item(), w.grad.sum().item()]
        w.grad = None
    return results


DRAWS: dict[str, Callable[[random.Random, list[torch.Tensor]], torch.Tensor]] = {
    "stack": lambda rng, pieces: torch.stack(rng.choices(pieces, k=8)),
    "cat": lambda rng, pieces: torch.cat([x.view(1, 6) for x in rng.choices(pieces, k=8)]),
    "cat of views and copies": lambda rng, pieces: torch.cat(
        [x[None].clone() if rng.random() < 0.5 else x[None] for x in rng.choices(pieces, k=6)]
    ),
    "padded": lambda rng, pieces: torch.nn.utils.rnn.pad_sequence(
        [pieces[0]] + [x[: rng.randint(1, 6)] for x in rng.choices(pieces, k=5)], batch_first=True, padding_value=-1.0
    ),
    "one by one": lambda rng, pieces: _filled(rng.choices(pieces, k=5)),
}  # fmt: skip


def _filled(rows: list[torch.Tensor]) -> torch.Tensor:
    batch = rows[0].new_zeros(5, 6)
    for i, row in enumerate(rows):
        batch[i] = row
    return batch


@pytest.mark.parametrize("name", DRAWS)
def test_drawn_batches_settle(name: str) -> None:
    given = replay(DEVICE, DRAWS[name])
    assert compiled() <= 8  # the first patterns, with what reads the gradient, and then what they have in common
    torch.testing.assert_close(given, replay("cpu", DRAWS[name]))
    torch_pjrt.reset_metrics()
    replay(DEVICE, DRAWS[name])
    assert compiled() == 0


def test_a_batch_alone() -> None:
    rng = random.Random(1)
    pieces = [torch.full((3,), i, dtype=torch.float16, device=DEVICE) for i in range(6)]
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    for _ in range(12):
        places = rng.choices(range(6), k=5)
        assert torch.stack([pieces[i] for i in places])[:, 0].tolist() == places
    assert compiled() <= 3
    assert torch_pjrt.metrics()["graphs_interpreted"] >= 6


def test_equal_batches_stay_in_their_graph() -> None:
    parameters = [torch.randn(4, 2, dtype=torch.complex64).to(DEVICE).requires_grad_() for _ in range(5)]
    for n in range(1, 8):
        (torch.cat(parameters) * torch.ones(n, 1, 1, device=DEVICE)).abs().sum().item()
    metrics = torch_pjrt.metrics()
    assert (compiled(), metrics["executions"], metrics["graphs_interpreted"]) == (7, 7, 0)


def test_a_large_batch_is_compiled() -> None:
    pieces = [torch.full((1 << 20,), float(i), dtype=torch.bfloat16, device=DEVICE) for i in range(3)]
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    for places in ([0, 0, 0, 1] * 3, [0, 0, 1, 1] * 3, [0, 1, 1, 1] * 3, [1, 1, 1, 1] * 3, [2, 1, 1, 1] * 3):
        assert torch.stack([pieces[i] for i in places])[:, 5].tolist() == places
    assert torch_pjrt.metrics()["graphs_interpreted"] == 0


def test_strict_mode_compiles_each() -> None:
    pieces = [torch.tensor([[i]], dtype=torch.float32, device=DEVICE) for i in range(3)]
    with torch_pjrt.strict_mode():
        for places in ([0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 0, 1], [1, 2, 2, 1], [2, 2, 2, 2]):
            assert (torch.cat([pieces[i] for i in places]) * 3).sum().item() == 3 * sum(places)
    assert torch_pjrt.metrics()["graphs_interpreted"] == 0


def test_it_is_told() -> None:
    rng = random.Random(3)
    pieces = [torch.tensor([[i]], dtype=torch.int16, device=DEVICE) for i in range(9)]
    with torch_pjrt.explain() as report:
        for _ in range(8):
            (torch.cat(rng.choices(pieces, k=7)) * 0.5).sum().item()
    batches = [run for run in report.graphs if run.cause == "a batch of other pieces"]
    assert len(batches) >= 4
    assert all((run.source, run.graph) == ("host", 0) for run in batches)  # no program is kept for them
    assert "small graphs on the host" in str(report)
