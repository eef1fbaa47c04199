"""Sparse tensors under torch.compile, compile_step and jit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torch_pjrt
from tests.sparse.layouts import DEVICE, matrix, name, parts

WEIGHT = torch.randn(3, 2, dtype=torch.float64)


def network(sparse: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.relu(sparse @ (x @ WEIGHT.to(x.device)))


@pytest.fixture(autouse=True)
def anew() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=name)
@pytest.mark.parametrize("is_closure", [True, False], ids=["closure", "argument"])
def test_products(layout: torch.layout, is_closure: bool) -> None:
    there, x = matrix(layout), torch.randn(6, 3, dtype=torch.float64)
    sparse = there.to(DEVICE)
    if is_closure:
        compiled: Callable[..., torch.Tensor] = torch.compile(lambda x: network(sparse, x), backend="pjrt")
        results = [compiled(x.to(DEVICE)) for _ in range(2)]
    else:
        compiled = torch.compile(network, backend="pjrt")
        results = [compiled(sparse, x.to(DEVICE)) for _ in range(2)]
    for result in results:
        torch.testing.assert_close(result.cpu(), network(there, x))


def test_what_is_made_within_breaks_the_graph_and_is_right() -> None:
    places = torch.arange(5).expand(2, 5)

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.sparse_coo_tensor(places.to(x.device), x[:, 0].sin(), (5, 5)) @ x.cos()

    x = torch.randn(5, 3)
    torch._dynamo.utils.counters.clear()
    result = torch.compile(program, backend="pjrt")(x.to(DEVICE))
    assert any("sparse_coo_tensor" in reason for reason in torch._dynamo.utils.counters["graph_break"])
    torch.testing.assert_close(result.cpu(), program(x))


def test_a_compiled_step_makes_its_sparse_tensors() -> None:
    there = matrix(torch.sparse_csr, torch.float32)
    ends, columns, values = (x.to(DEVICE) for x in parts(there))
    layer = torch.nn.Linear(3, 2).to(DEVICE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.005)
    x = torch.randn(6, 3, device=DEVICE)

    @torch_pjrt.compile_step
    def step(x: torch.Tensor) -> torch.Tensor:
        sparse = torch.sparse_csr_tensor(ends, columns, values, (4, 6), check_invariants=False)
        optimizer.zero_grad()
        loss = (sparse @ layer(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    before = (matrix(torch.sparse_csr, torch.float32) @ layer(x).detach().cpu()).square().mean()
    losses = [step(x).item() for _ in range(4)]
    torch.testing.assert_close(torch.tensor(losses[0]), before)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_a_compiled_step_refuses_those_that_are_there() -> None:
    sparse = matrix(torch.sparse_csr).to(DEVICE)
    x = torch.ones(6, 2, dtype=torch.float64, device=DEVICE)
    with pytest.raises(torch_pjrt.CaptureError, match=r"is a sparse tensor \(torch.sparse_csr\).* indices and values"):
        torch_pjrt.compile_step(lambda x: sparse @ x)(x)
    with pytest.raises(
        torch_pjrt.CaptureError, match=r"argument 0 is no plain dense tensor \(Tensor, torch.sparse_csr\)"
    ):
        torch_pjrt.compile_step(lambda s, x: s @ x)(sparse, x)
