"""Sparse gradients from a function compiled by torch.compile, where the ops that make and add them run eagerly, and
gradients of products with sparse matrices in captures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import torch_pjrt


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 4, sparse=True)
        self.bags = nn.EmbeddingBag(20, 4, mode="sum", sparse=True)
        self.head = nn.Linear(4, 2)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.head(self.words(ids).sum(1) * self.words(ids + 1)[:, 0] + self.bags(ids))
        return found


@pytest.mark.filterwarnings("ignore:.*is not compiled", "ignore:Sparse invariant checks", "ignore:Sparse CSR")
@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_embeddings_by_torch_compile(device: str) -> None:
    def trained(device: str, backend: str) -> list[Tensor]:
        torch.manual_seed(0)
        model = Words().to(device)
        fast = torch.compile(model, backend=backend)
        sparse = [*model.words.parameters(), *model.bags.parameters()]
        optimizers = [torch.optim.SparseAdam(sparse, lr=0.1), torch.optim.SGD(model.head.parameters(), lr=0.1)]
        for start in range(3):
            for optimizer in optimizers:
                optimizer.zero_grad()
            fast((torch.arange(9).view(3, 3) + start).to(device)).square().sum().backward()
            gradients = [p.grad for p in sparse]
            assert all(gradient is not None and gradient.is_sparse for gradient in gradients)
            for optimizer in optimizers:
                optimizer.step()
        return [value.detach().to_dense().cpu() for value in (*gradients, *model.parameters()) if value is not None]

    wanted = trained("cpu", "eager")
    torch_pjrt.reset_metrics()
    torch.testing.assert_close(trained(device, "pjrt"), wanted, rtol=1e-4, atol=1e-4)
    assert not {"aten.mm.default", "aten.mul.Tensor"} & torch_pjrt.metrics()["host_fallbacks"].keys()


PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sparse.mm": torch.sparse.mm,
    "@": lambda a, b: a @ b,
    "after a change": lambda a, b: torch.sparse.mm(a.detach().mul_(2), b),
}


@pytest.mark.parametrize("how", ["jit", "compile_step"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_learned_matrices_in_captures(product: str, how: str) -> None:
    """Edges repeat: their number, ordered, depends on data."""

    def step(values: Tensor, edges: Tensor, x: Tensor) -> list[Tensor]:
        with torch.enable_grad():
            leaves = [values.detach().requires_grad_(), x.detach().requires_grad_()]
            made = PRODUCTS[product](torch.sparse_coo_tensor(edges, leaves[0], (4, 5)), leaves[1])
            loss = (made * made.cos()).sum()
            return [loss.detach(), *torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)]

    given = torch.randn(9), torch.stack([torch.arange(9) % 4, torch.arange(9) % 3]), torch.randn(5, 3)
    program = torch_pjrt.compile_step(step) if how == "compile_step" else torch_pjrt.jit(step, given)
    torch.testing.assert_close(program(*given), step(*given))
