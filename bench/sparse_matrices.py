"""A CSR matrix of 100,000 rows times a strided one of 64 columns, and its gradient; a graph network's step."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from measure import Result, compare

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from examples import graph

ROWS, A_ROW, COLUMNS, NODES = 100_000, 10, 64, 5000


def matrix() -> torch.Tensor:
    """Returns a matrix (ROWS, ROWS) with A_ROW elements in each row."""
    torch.manual_seed(0)
    places = torch.randint(ROWS // A_ROW, (ROWS, A_ROW)) + torch.arange(A_ROW) * (ROWS // A_ROW)
    ends = torch.arange(ROWS + 1) * A_ROW
    return torch.sparse_csr_tensor(ends, places.flatten(), torch.randn(ROWS * A_ROW), (ROWS, ROWS))


def forward(device: str) -> Callable[[], object]:
    sparse, x = matrix().to(device), torch.randn(ROWS, COLUMNS).to(device)
    return lambda: (sparse @ x)[-1, -1].item()


def gradient(device: str) -> Callable[[], object]:
    """Returns a call that computes the gradient of the strided operand."""
    sparse, weight = matrix().to(device), torch.randn(ROWS, COLUMNS).to(device)
    x = torch.randn(ROWS, COLUMNS).to(device).requires_grad_()

    def work() -> float:
        y = sparse @ x
        (found,) = torch.autograd.grad(y, x, weight)
        return found[-1, -1].item() + y[-1, -1].item()

    return work


def gradient_of_values(device: str) -> Callable[[], object]:
    """Returns a call that computes the gradient of a sparse leaf, by torch.sparse.mm: for `@`, PyTorch would make a
    matrix of ROWS x ROWS on the CPU."""
    sparse, weight = matrix().to(device).requires_grad_(), torch.randn(ROWS, COLUMNS).to(device)
    x = torch.randn(ROWS, COLUMNS).to(device)

    def work() -> float:
        (found,) = torch.autograd.grad(torch.sparse.mm(sparse, x), sparse, weight)
        return found.values()[-1].item()

    return work


def step(device: str, layout: torch.layout) -> Callable[[], object]:
    torch.manual_seed(0)
    adjacency, features, kinds = (x.to(device) for x in graph.draw(NODES, layout))
    network = graph.Network().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)

    def work() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(adjacency, features), kinds)
        loss.backward()
        optimizer.step()
        return loss.item()

    return work


def measure() -> list[Result]:
    warnings.filterwarnings("ignore", message="Sparse")
    made: list[tuple[str, Callable[[str], Callable[[], object]], float]] = [
        ("CSR x dense", forward, 1.1),
        ("CSR x dense, and its gradient", gradient, 1.1),
        ("torch.sparse.mm, and the values' gradient", gradient_of_values, 1.1),
        ("graph network's step, CSR", lambda device: step(device, torch.sparse_csr), 1.0),
        ("graph network's step, COO", lambda device: step(device, torch.sparse_coo), 1.0),
    ]
    return [compare(name, make("pjrt"), make("cpu"), target, rounds=7, warm=2) for name, make, target in made]
