"""Sparse tensors under torch.compile, compile_step and jit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torch_pjrt
from tests.sparse.layouts import DEVICE, LAYOUTS, matrix, name, parts

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


@pytest.mark.parametrize("layout", LAYOUTS[:-1], ids=name)  # nothing multiplies BSC
def test_those_that_are_there(layout: torch.layout) -> None:
    there = [matrix(layout), matrix(layout) * 3]
    here = [one.to(DEVICE) for one in there]
    x = torch.randn(6, 2, dtype=torch.float64)
    held = torch_pjrt.compile_step(lambda x: here[0] @ x)
    given = torch_pjrt.compile_step(lambda sparse, x: sparse @ x)
    jitted = torch_pjrt.jit(lambda sparse, x: sparse @ x, (here[0], x.to(DEVICE)))
    for one, other in zip(there, here, strict=True):
        for _ in range(2):
            torch.testing.assert_close(held(x.to(DEVICE)).cpu(), there[0] @ x)
            torch.testing.assert_close(given(other, x.to(DEVICE)).cpu(), one @ x)
            torch.testing.assert_close(jitted(other, x.to(DEVICE)).cpu(), one @ x)
    assert (held.captures, given.captures) == (1, 1)


def test_another_layout_or_number_of_elements_is_another_program() -> None:
    x = torch.randn(6, 2, dtype=torch.float64)
    step = torch_pjrt.compile_step(lambda sparse, x: sparse @ x)
    dense = matrix(torch.sparse_coo).to_dense()
    fewer = dense * (dense > 0)
    for given in (dense, dense.to_sparse_csr(), fewer.to_sparse_csr(), dense.to_sparse(), dense.to_sparse_csr()):
        torch.testing.assert_close(step(given.to(DEVICE), x.to(DEVICE)).cpu(), given @ x)
    assert step.captures == 4
    jitted = torch_pjrt.jit(lambda sparse, x: sparse @ x, (dense.to_sparse().to(DEVICE), x.to(DEVICE)))
    with pytest.raises(TypeError, match=r"expected int64\[2, 6\] on 'pjrt:0', got int64\[2, 5\]"):
        jitted(fewer.to_sparse().to(DEVICE), x.to(DEVICE))
    with pytest.raises(TypeError, match="argument 0"):
        jitted(dense.to_sparse_csr().to(DEVICE), x.to(DEVICE))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=name)
def test_what_is_done_to_them_between_the_calls(layout: torch.layout) -> None:
    there, x = matrix(layout), torch.randn(6, 2, dtype=torch.float64)
    here = there.to(DEVICE)
    step = torch_pjrt.compile_step(lambda x: here @ x)
    more = torch.eye(4, 6, dtype=torch.float64).to_sparse(layout=layout)
    changes: list[Callable[[torch.Tensor], object]] = [
        lambda sparse: None,
        lambda sparse: parts(sparse)[-1].mul_(2),
        lambda sparse: sparse.mul_(3),
        lambda sparse: sparse.add_(more.to(sparse.device)),
    ]
    for change in changes:
        change(there)
        change(here)
        torch.testing.assert_close(step(x.to(DEVICE)).cpu(), there @ x)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=name)
def test_a_step_writes_to_their_values_and_gives_them(layout: torch.layout) -> None:
    there = matrix(layout)
    here = there.to(DEVICE)

    @torch_pjrt.compile_step
    def step() -> torch.Tensor:
        here.mul_(2)
        return here * 5

    for i in (2, 4, 8):
        result = step()
        torch.testing.assert_close(here.cpu(), there * i)
        torch.testing.assert_close(result.cpu(), there * i * 5)
        assert result.layout == layout


def test_modules_with_an_adjacency_train() -> None:
    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("adjacency", (matrix(torch.sparse_csr, torch.float32).to_dense() + 1).to_sparse_csr())
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.adjacency @ self.layer(x)

    def losses(device: str, wrap: Callable[..., Callable[..., torch.Tensor]]) -> list[float]:
        torch.manual_seed(0)
        network = Graph().to(device)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.001)
        x = torch.randn(6, 3).to(device)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = network(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = wrap(step)
        found = [step(x).item() for _ in range(4)]
        network.adjacency = (network.adjacency * 2).detach()
        return found + [step(x).item() for _ in range(2)]

    expected = losses("cpu", lambda step: step)
    torch.testing.assert_close(losses(DEVICE, torch_pjrt.compile_step), expected, rtol=1e-4, atol=1e-5)


def test_what_a_compiled_step_refuses() -> None:
    sparse = matrix(torch.sparse_csr).to(DEVICE)
    x = torch.ones(6, 2, dtype=torch.float64, device=DEVICE)

    def grown() -> None:
        sparse.add_(torch.eye(4, 6, dtype=torch.float64, device=DEVICE).to_sparse_csr())

    with pytest.raises(torch_pjrt.CaptureError, match=r"value is needed.* call it outside, or"):
        torch_pjrt.compile_step(grown)()
    with pytest.raises(torch_pjrt.CaptureError, match=r"\(torch.sparse_csr\) that requires grad.* values"):
        torch_pjrt.compile_step(lambda s, x: s @ x)(matrix(torch.sparse_csr).to(DEVICE).requires_grad_(), x)
    sparse.requires_grad_()
    with pytest.raises(torch_pjrt.CaptureError, match=r"\(torch.sparse_csr\) that requires grad.* values"):
        torch_pjrt.compile_step(lambda x: sparse @ x)(x)


def test_a_program_in_a_file_takes_none() -> None:
    sparse = matrix(torch.sparse_csr).to(DEVICE)
    with pytest.raises(TypeError, match=r"argument 's' of 'main' is a sparse tensor: give what it is made of"):
        torch_pjrt.export(lambda s, x: s @ x, (sparse, torch.ones(6, 2, dtype=torch.float64, device=DEVICE)))
