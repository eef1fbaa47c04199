"""Graph networks as in PyTorch Geometric and DGL, by edges and by torch.sparse, compared with the CPU."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import torch_pjrt
from tests.sparse.layouts import CPU, DEVICE

NODES, FEATURES, HIDDEN, KINDS, STEPS = 40, 6, 8, 3, 4
Adjacency = torch.Tensor  # edges (2, E), from and to; or a sparse matrix (NODES, NODES), to and from


def edges() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(NODES, (2, 120), generator=generator).unique(dim=1)


def adjacency(kind: str, device: str) -> Adjacency:
    if kind == "edges":
        return edges().to(device)
    where = edges().flip(0)
    matrix = torch.sparse_coo_tensor(where, torch.ones(where.size(1)), (NODES, NODES)).coalesce().to(device)
    return matrix if kind == "coo" else matrix.to_sparse_csr()


def ends(graph: Adjacency) -> torch.Tensor:
    """Returns (2, E), from and to."""
    if graph.layout == torch.strided:
        return graph
    coo = graph if graph.layout == torch.sparse_coo else graph.to_sparse_coo()
    return coo.indices().flip(0)


def gathered(graph: Adjacency, x: torch.Tensor, reduce: str = "sum") -> torch.Tensor:
    """Returns the reduction of each node's neighbours' features."""
    if graph.layout == torch.strided:
        source, target = graph
        if reduce == "sum":
            return x.new_zeros(NODES, x.size(1)).index_add(0, target, x[source])
        place = target.unsqueeze(1).expand(-1, x.size(1))
        return x.new_zeros(NODES, x.size(1)).scatter_reduce(0, place, x[source], reduce, include_self=False)
    if reduce == "sum":
        return torch.sparse.mm(graph, x)
    csr = graph if graph.layout == torch.sparse_csr else graph.to_sparse_csr()
    return torch.sparse.mm(csr, x, reduce)


class Convolution(nn.Module):
    """Kipf and Welling's convolution, with the nodes themselves as neighbours."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor, graph: Adjacency) -> torch.Tensor:
        degree = 1 + gathered(graph, x.new_ones(NODES, 1))
        scaled = self.linear(x) * degree.rsqrt()
        return (gathered(graph, scaled) + scaled) * degree.rsqrt()


class Sage(nn.Module):
    def __init__(self, inputs: int, outputs: int, reduce: str = "mean") -> None:
        super().__init__()
        self.own, self.others, self.reduce = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs), reduce

    def forward(self, x: torch.Tensor, graph: Adjacency) -> torch.Tensor:
        return self.own(x) + self.others(gathered(graph, x, self.reduce))


class Isomorphism(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))
        self.epsilon = nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor, graph: Adjacency) -> torch.Tensor:
        return self.network((1 + self.epsilon) * x + gathered(graph, x))


class Attention(nn.Module):
    """The weights are a softmax over each node's edges; in torch.sparse they are a matrix's values, and learned."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear, self.source, self.target = nn.Linear(inputs, outputs), nn.Linear(outputs, 1), nn.Linear(outputs, 1)

    def forward(self, x: torch.Tensor, graph: Adjacency) -> torch.Tensor:
        source, target = ends(graph)
        x = self.linear(x)
        score = nn.functional.leaky_relu(self.source(x)[source] + self.target(x)[target], 0.2).squeeze(1)
        most = score.new_full((NODES,), -torch.inf).scatter_reduce(0, target, score.detach(), "amax")
        power = (score - most[target]).exp()
        weight = power / power.new_zeros(NODES).index_add(0, target, power)[target]
        if graph.layout == torch.strided:
            return x.new_zeros(NODES, x.size(1)).index_add(0, target, weight.unsqueeze(1) * x[source])
        if graph.layout == torch.sparse_coo:
            return torch.sparse_coo_tensor(torch.stack([target, source]), weight, (NODES, NODES)) @ x
        made = torch.sparse_csr_tensor(graph.crow_indices(), graph.col_indices(), weight, (NODES, NODES))
        return made @ x


class Masked(nn.Module):
    """Edges to themselves are dropped first, by a mask, so the number of edges is data."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inner = Attention(inputs, outputs)

    def forward(self, x: torch.Tensor, graph: Adjacency) -> torch.Tensor:
        if graph.layout == torch.strided:
            graph = graph[:, graph[0] != graph[1]]
        return self.inner(x, graph)


LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "GCN": Convolution,
    "SAGE": Sage,
    "SAGE of the greatest": lambda inputs, outputs: Sage(inputs, outputs, "amax"),
    "GIN": Isomorphism,
    "GAT": Attention,
    "GAT of other nodes": Masked,
}


class Network(nn.Module):
    def __init__(self, layer: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = layer(FEATURES, HIDDEN), layer(HIDDEN, KINDS)

    def forward(self, x: torch.Tensor, graph: Adjacency) -> torch.Tensor:
        return self.second(torch.relu(self.first(x, graph)), graph)


def losses(layer: str, kind: str, device: str) -> Iterator[float]:
    torch.manual_seed(0)
    network = Network(LAYERS[layer]).to(device)
    x, kinds = torch.randn(NODES, FEATURES).to(device), torch.randint(KINDS, (NODES,)).to(device)
    graph = adjacency(kind, device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    while True:
        torch_pjrt.reset_metrics()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x, graph), kinds)
        loss.backward()
        optimizer.step()
        yield loss.item()


@pytest.mark.parametrize("kind", ["edges", "coo", "csr"])
@pytest.mark.parametrize("layer", LAYERS)
def test_layers(layer: str, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")
        theirs = list(itertools.islice(losses(layer, kind, CPU), STEPS))
        ours = list(itertools.islice(losses(layer, kind, DEVICE), STEPS))
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-4, atol=1e-5)
    assert theirs[-1] < theirs[0]
    metrics = torch_pjrt.metrics()
    assert metrics["host_fallbacks"] == {}
    reads = (kind == "edges" and layer == "GAT of other nodes") or (kind == "coo" and layer == "SAGE of the greatest")
    assert metrics["executions"] <= 2 or reads  # the network, and what may be apart from it


def test_sampled_neighbours() -> None:
    """Loaders of large graphs pick rows, and renumber the remaining columns."""

    def run(device: str) -> list[torch.Tensor]:
        matrix, x = adjacency("coo", device), torch.arange(2.0 * NODES, device=device).reshape(NODES, 2)
        seeds = torch.tensor([3, 17, 5], device=device)
        rows = matrix.index_select(0, seeds).coalesce()
        nodes, numbers = rows.indices()[1].unique(return_inverse=True)
        block = torch.sparse_coo_tensor(torch.stack([rows.indices()[0], numbers]), rows.values(), (3, nodes.size(0)))
        return [nodes, block @ x[nodes]]

    for ours, theirs in zip(run(DEVICE), run(CPU), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_paths_of_two_edges() -> None:
    def run(device: str) -> torch.Tensor:
        matrix = adjacency("csr", device)
        return (matrix @ matrix + matrix).to_dense()

    torch.testing.assert_close(run(DEVICE).cpu(), run(CPU))
