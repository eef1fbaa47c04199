"""Graph networks: written out with gathers, scatters and sparse matrices, and torch_geometric's layers."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.model import Built

NODES, EDGES, WIDTH = 12, 40, 8
LAYERS = (
    "GCNConv", "GATConv", "GATv2Conv", "SAGEConv", "GraphConv", "GINConv", "TransformerConv", "TAGConv", "ChebConv",
    "ARMAConv", "SGConv", "LEConv", "GENConv", "ResGatedGraphConv", "EdgeConv", "ClusterGCNConv",
)  # fmt: skip


class Sums(nn.Module):
    """A convolution over a graph: sums of neighbours by index_add_, divided by their counts."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.theirs = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        sums = torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]])
        counts = torch.zeros(x.shape[0], device=x.device, dtype=x.dtype)
        counts.index_add_(0, edges[1], torch.ones_like(edges[1], dtype=x.dtype))
        return F.relu(self.own(x) + self.theirs(sums / counts.clamp(min=1)[:, None]))


class Attention(nn.Module):
    """Attention over edges: a softmax of each node's incoming scores by scatter_reduce."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.score = nn.Linear(WIDTH, WIDTH), nn.Linear(2 * WIDTH, 1)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        values = self.values(x)
        scores = F.leaky_relu(self.score(torch.cat([values[edges[0]], values[edges[1]]], 1)), 0.2).squeeze(1)
        top = torch.full((x.shape[0],), -1e9, device=x.device, dtype=x.dtype)
        top = top.scatter_reduce(0, edges[1], scores, "amax")
        weights = (scores - top[edges[1]]).exp()
        sums = torch.zeros_like(top).scatter_add(0, edges[1], weights)
        return torch.zeros_like(values).index_add(0, edges[1], values[edges[0]] * (weights / sums[edges[1]])[:, None])


class Matrix(nn.Module):
    """A convolution over a graph by the product with a sparse matrix that the forward call makes of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        ones = torch.ones(edges.shape[1], device=x.device, dtype=x.dtype)
        matrix = torch.sparse_coo_tensor(edges.flip(0), ones, (x.shape[0], x.shape[0]))
        return torch.tanh(torch.sparse.mm(matrix, self.linear(x)))


class Pooled(nn.Module):
    """Messages of edges, and the largest, least and mean node of each of three graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.head = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.SiLU()), nn.Linear(3 * WIDTH, 2)

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        messages = self.message(torch.cat([x[edges[0]], x[edges[1]] - x[edges[0]]], 1))
        nodes = torch.zeros_like(x).scatter_reduce(0, edges[1][:, None].expand_as(messages), messages, "mean")
        where = graph[:, None].expand_as(nodes)
        pools = [
            torch.zeros(3, WIDTH, device=x.device, dtype=x.dtype).scatter_reduce(
                0, where, nodes, how, include_self=False
            )
            for how in ("amax", "amin", "mean")
        ]
        return self.head(torch.cat(pools, 1))


def inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(NODES, WIDTH), torch.randint(0, NODES, (2, EDGES))


def models() -> dict[str, Callable[[], Built]]:
    found: dict[str, Callable[[], Built]] = {
        "sums": lambda: Built(Sums(), inputs()),
        "attention": lambda: Built(Attention(), inputs()),
        "matrix": lambda: Built(Matrix(), inputs()),
        "pooled": lambda: Built(Pooled(), (*inputs(), torch.arange(NODES) // 4)),
    }
    if importlib.util.find_spec("torch_geometric"):
        found |= {f"geometric.{name}": functools.partial(geometric, name) for name in LAYERS}
    return found


def geometric(name: str) -> Built:
    from torch_geometric import nn as layers

    special = {
        "GINConv": lambda: layers.GINConv(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())),
        "EdgeConv": lambda: layers.EdgeConv(nn.Linear(2 * WIDTH, WIDTH)),
        "ChebConv": lambda: layers.ChebConv(WIDTH, WIDTH, K=2),
    }
    make = special.get(name, lambda: getattr(layers, name)(WIDTH, WIDTH))
    return Built(make(), inputs())
