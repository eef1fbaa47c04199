"""A graph convolutional network (Kipf and Welling) on the device, its losses beside the CPU's.

    python examples/graph.py [nodes] [--layout csr]

The graph is drawn: nodes of four kinds, of which equal ones are mostly linked. A node sees its kind through noise; its
neighbours tell more. The adjacency is a sparse tensor, and a training step is one program.
"""

from __future__ import annotations

import argparse
import time

import torch

import torch_pjrt

KINDS, FEATURES, HIDDEN, STEPS = 4, 32, 32, 40
Graph = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # adjacency, features, kinds


def draw(nodes: int, layout: torch.layout) -> Graph:
    """Returns adjacency (nodes, nodes), scaled by 1 / sqrt(degree) on both sides, features (nodes, FEATURES), kinds
    (nodes)."""
    kinds = torch.randint(KINDS, (nodes,))
    tail, head = torch.randint(nodes, (2, 40 * nodes))
    is_kept = (kinds[tail] == kinds[head]) | (torch.rand(tail.shape) < 0.05)
    tail, head = tail[is_kept], head[is_kept]
    itself = torch.arange(nodes)
    edges = torch.stack([torch.cat([tail, head, itself]), torch.cat([head, tail, itself])]).unique(dim=1).contiguous()
    degree = torch.bincount(edges[0], minlength=nodes).float()
    weights = degree[edges[0]].rsqrt() * degree[edges[1]].rsqrt()
    adjacency = torch.sparse_coo_tensor(edges, weights, (nodes, nodes), is_coalesced=True, check_invariants=True)
    features = torch.nn.functional.one_hot(kinds, FEATURES) + 2 * torch.randn(nodes, FEATURES)
    return adjacency.to_sparse(layout=layout), features, kinds


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(FEATURES, HIDDEN)
        self.second = torch.nn.Linear(HIDDEN, KINDS)

    def forward(self, adjacency: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(adjacency @ self.first(features))
        return adjacency @ self.second(hidden)


def train(graph: Graph, device: str) -> tuple[list[float], float, float]:
    """Returns the losses, the share of nodes that are classified correctly, and seconds of a step at the end."""
    torch.manual_seed(0)
    adjacency, features, kinds = (x.to(device) for x in graph)
    network = Network().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for step in range(STEPS):
        if step == STEPS // 2:
            start = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(adjacency, features), kinds)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    seconds = (time.perf_counter() - start) / (STEPS - STEPS // 2)
    right = (network(adjacency, features).argmax(1) == kinds).float().mean().item()
    return losses, right, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", type=int, nargs="?", default=2000)
    parser.add_argument("--layout", choices=["coo", "csr", "csc"], default="csr")
    options = parser.parse_args()
    torch.manual_seed(1)
    graph = draw(options.nodes, getattr(torch, f"sparse_{options.layout}"))
    print(f"{options.nodes} nodes, {graph[0]._nnz()} elements of {graph[0].layout}")
    there, _, on_cpu = train(graph, "cpu")
    torch_pjrt.reset_metrics()
    here, right, on_device = train(graph, "pjrt")
    for step in (0, STEPS // 4, STEPS // 2, STEPS - 1):
        print(f"step {step:2}: loss {here[step]:.4f} on pjrt, {there[step]:.4f} on the CPU")
    runs = torch_pjrt.metrics()["executions"]
    print(f"{right:.1%} right; {runs} programs run in {STEPS} steps")
    print(f"{1000 * on_device:.2f} ms a step, {1000 * on_cpu:.2f} ms on the CPU")


if __name__ == "__main__":
    main()
