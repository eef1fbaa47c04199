"""Gradients of sparse tensors, and sparse gradients of strided ones."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

import torch_pjrt
from tests.sparse.layouts import DEVICE, LAYOUTS, assert_same, assert_same_on_both, matrix, name, uncoalesced

WORDS = torch.tensor([[1, 5, 1], [0, 2, 5]])


def train(make: Callable[[], torch.nn.Module], optimizer: Callable[..., torch.optim.Optimizer], device: str) -> list:
    torch.manual_seed(0)
    module = make().to(device)
    step = optimizer(module.parameters())
    shown = []
    for i in range(3):
        step.zero_grad()
        loss = module((WORDS + i).to(device)).pow(2).sum()
        loss.backward()
        step.step()
        shown.append(loss.detach())
    return [*shown, *(p.grad for p in module.parameters()), *(p.detach() for p in module.parameters())]


MODULES: dict[str, Callable[[], torch.nn.Module]] = {
    "embedding": lambda: torch.nn.Embedding(9, 4, sparse=True),
    "embedding with padding": lambda: torch.nn.Embedding(9, 4, sparse=True, padding_idx=2),
    "bag of sums": lambda: torch.nn.EmbeddingBag(9, 4, sparse=True, mode="sum"),
    "bag of means": lambda: torch.nn.EmbeddingBag(9, 4, sparse=True, mode="mean"),
    "bag with padding": lambda: torch.nn.EmbeddingBag(9, 4, sparse=True, mode="sum", padding_idx=5),
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SparseAdam": lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("module", MODULES)
def test_sparse_gradients(module: str, optimizer: str) -> None:
    assert_same_on_both(lambda device: train(MODULES[module], OPTIMIZERS[optimizer], device), same_elements=False,
                        rtol=1e-5, atol=1e-6)  # fmt: skip
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_an_embeddings_step_is_one_program() -> None:
    module = torch.nn.Embedding(100, 8, sparse=True).to(DEVICE)
    step = torch.optim.SGD(module.parameters(), lr=0.1)
    words = WORDS.to(DEVICE)
    for _ in range(3):
        torch_pjrt.reset_metrics()
        step.zero_grad()
        loss = module(words).pow(2).sum()
        loss.backward()
        step.step()
        loss.item()
        assert torch_pjrt.metrics()["executions"] == 1


def gradients(program: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[torch.Tensor]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    result = program(*leaves)
    (result if result.layout == torch.strided else result.to_dense()).pow(2).sum().backward()
    return [result.detach(), *(leaf.grad for leaf in leaves)]


def dense(rows: int, columns: int, device: str) -> torch.Tensor:
    return (torch.arange(rows * columns, dtype=torch.float64).reshape(rows, columns).sin()).to(device)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=name)
@pytest.mark.parametrize(
    "program",
    [
        lambda s, x: s @ x,
        lambda s, x: torch.sparse.mm(s, x),
        lambda s, x: torch.addmm(x[:4], s, x, beta=0.5, alpha=2),
        lambda s, x: torch.sparse.addmm(x[:4], s, x, beta=0.5, alpha=2),
        lambda s, x: torch.mv(s, x[:, 0]),
    ],
    ids=["@", "mm", "addmm", "sparse.addmm", "mv"],
)
@pytest.mark.each_way
def test_gradients_of_products(layout: torch.layout, program: Callable[..., torch.Tensor]) -> None:
    def run(device: str) -> list[torch.Tensor]:
        sparse = matrix(layout).to(device)
        if layout == torch.sparse_coo:
            sparse = sparse.coalesce()
        return gradients(program, sparse, dense(6, 3, device))

    assert_same_on_both(run)


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc], ids=name)
def test_gradient_of_the_strided_operand(layout: torch.layout) -> None:
    def run(device: str) -> list[torch.Tensor]:
        sparse = matrix(layout).to(device)
        return gradients(lambda x: sparse @ x, dense(6, 3, device))

    assert_same_on_both(run)


def test_gradients_of_values() -> None:
    def run(device: str) -> list[torch.Tensor]:
        indices = uncoalesced()._indices().to(device)

        def program(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.sparse.mm(torch.sparse_coo_tensor(indices, values, (3, 4)), x)

        return gradients(program, uncoalesced()._values().to(device), dense(4, 3, device))

    assert_same_on_both(run)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.coalesce(),
        lambda x: x.to_dense(),
        lambda x: x.coalesce().values(),
        lambda x: torch.sparse.sum(x, 0),
        lambda x: torch.sparse.sum(x),
        lambda x: torch.sparse.softmax(x, 1),
        lambda x: torch.sparse.log_softmax(x, 0),
        lambda x: x.neg(),
        lambda x: x * 3,
        lambda x: x + x,
        lambda x: x * x.detach().to_dense(),
        lambda x: x.t(),
    ],
)
def test_gradients_of_coo(program: Callable[..., torch.Tensor]) -> None:
    assert_same_on_both(lambda device: gradients(program, uncoalesced().to(device).coalesce()), same_elements=False)


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
def test_gradient_through_a_layout(layout: torch.layout) -> None:
    blocks = {"blocksize": (2, 2)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}

    def run(device: str) -> list[torch.Tensor]:
        return gradients(lambda x: (x.to_sparse(layout=layout, **blocks) * 2).to_dense(), dense(4, 6, device))

    assert_same_on_both(run)


def test_gradients_of_csr() -> None:
    assert_same_on_both(lambda device: gradients(lambda x: (x * 3).to_dense(), matrix(torch.sparse_csr).to(device)))


def test_modules_keep_sparse_buffers() -> None:
    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("adjacency", matrix(torch.sparse_coo, torch.float32).coalesce())
            self.weight = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.weight(self.adjacency @ x)

    here = Graph()
    there = copy.deepcopy(here).to(DEVICE)
    x = torch.randn(6, 3)
    assert_same(there(x.to(DEVICE)), here(x), rtol=1e-5, atol=1e-6)
    again = Graph()
    again.load_state_dict({key: value.cpu() for key, value in there.state_dict().items()})
    torch.testing.assert_close(again(x), here(x))
