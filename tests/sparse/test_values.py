"""Gradients of a sparse matrix's values: PyTorch's formula makes a strided matrix of all places, of which this device
computes only those that have elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torch_pjrt
from tests.sparse.layouts import CPU, DEVICE, name

N = 40
Program = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def places(n: int, a_row: int) -> torch.Tensor:
    """Returns (2, n * a_row): the places of an n x n matrix with a_row elements in each row, in order."""
    generator = torch.Generator().manual_seed(0)
    columns = torch.randint(n // a_row, (n, a_row), generator=generator) + torch.arange(a_row) * (n // a_row)
    return torch.stack([torch.arange(n).repeat_interleave(a_row), columns.flatten()])


def made(indices: torch.Tensor, values: torch.Tensor, layout: torch.layout, n: int) -> torch.Tensor:
    if layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(indices, values, (n, n), check_invariants=False)
    ends = torch.arange(n + 1, device=values.device) * (values.size(0) // n)
    return torch.sparse_compressed_tensor(ends, indices[1], values, (n, n), layout=layout, check_invariants=False)


PROGRAMS: dict[str, Program] = {
    "@": lambda s, x: s @ x,
    "sparse.mm": lambda s, x: torch.sparse.mm(s, x),
    "addmm": lambda s, x: torch.addmm(x, s, x, alpha=2),
    "sparse.addmm": lambda s, x: torch.sparse.addmm(x, s, x, beta=0.5, alpha=2),
    "twice": lambda s, x: s @ (s @ x).tanh(),
    "three times": lambda s, x: s @ (s @ (s @ x)),
    "sparse.mm twice": lambda s, x: torch.sparse.mm(s, torch.sparse.mm(s, x)),
    "mv": lambda s, x: s @ x[:, 0],
    "from the right": lambda s, x: x.t() @ s,
    "transposed": lambda s, x: s.t() @ x,
    "scaled": lambda s, x: (s * 2) @ x + s @ x / 2,
}


def gradient(program: Program, indices: torch.Tensor, layout: torch.layout, device: str) -> torch.Tensor:
    indices, values = indices.to(device), torch.linspace(-1, 1, indices.size(1), dtype=torch.float64, device=device)
    x = torch.arange(2.0 * N, dtype=torch.float64, device=device).reshape(N, 2).sin()
    values.requires_grad_()
    result = program(made(indices, values, layout, N), x)
    weight = torch.arange(result.numel(), dtype=torch.float64, device=device).reshape(result.shape).cos()
    return torch.autograd.grad((result * weight).sum(), values)[0]


def outcome(program: Callable[[], Any]) -> Any:
    try:
        return program()
    except Exception as error:
        return error


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=name)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.each_way
def test_as_on_the_cpu(program: str, layout: torch.layout) -> None:
    expected = outcome(lambda: gradient(PROGRAMS[program], places(N, 2), layout, CPU))
    ours = outcome(lambda: gradient(PROGRAMS[program], places(N, 2), layout, DEVICE))
    if isinstance(expected, Exception):  # CSC has few of the CPU's kernels
        assert isinstance(ours, type(expected))
        assert str(ours)[:30] == str(expected)[:30]
        return
    torch.testing.assert_close(ours.cpu(), expected)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("program", ["@", "sparse.mm", "mv", "twice"])
@pytest.mark.each_way
def test_of_elements_in_any_order_and_of_one_place(program: str) -> None:
    indices = torch.cat([places(N, 2).flip(1), places(N, 2)[:, :7]], dim=1)
    expected = gradient(PROGRAMS[program], indices, torch.sparse_coo, CPU)
    torch.testing.assert_close(gradient(PROGRAMS[program], indices, torch.sparse_coo, DEVICE).cpu(), expected)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=name)
@pytest.mark.parametrize("program", ["@", "sparse.mm", "addmm", "twice", "sparse.mm twice", "mv", "from the right"])
def test_nothing_of_all_places_is_made(program: str, layout: torch.layout) -> None:
    """A strided matrix of a million rows and columns would take four terabytes."""
    n = 1_000_000
    indices = places(n, 2).to(DEVICE)
    values = torch.randn(2 * n, device=DEVICE, requires_grad=True)
    x = torch.randn(n, 2, device=DEVICE)
    PROGRAMS[program](made(indices, values, layout, n), x).sum().backward()
    found = values.grad.cpu()
    assert found.shape == (2 * n,)
    if program in ("@", "sparse.mm"):
        torch.testing.assert_close(found, x.cpu().sum(1)[indices[1].cpu()])


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=name)
def test_who_holds_the_strided_gradient_has_it(layout: torch.layout) -> None:
    def run(device: str) -> list[torch.Tensor]:
        values = torch.ones(2 * N, device=device, requires_grad=True)
        sparse = made(places(N, 2).to(device), values, layout, N)
        sparse.retain_grad()
        x = torch.arange(3.0 * N, device=device).reshape(N, 3).sin()
        (sparse @ x).square().sum().backward()
        assert sparse.grad.layout == torch.strided
        return [sparse.grad, values.grad]

    for ours, theirs in zip(run(DEVICE), run(CPU), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=name)
@pytest.mark.parametrize("program", ["@", "sparse.mm", "addmm", "twice"])
def test_twice_differentiated(program: str, layout: torch.layout) -> None:
    """The result is right, or PyTorch's error."""

    def run(device: str) -> list[torch.Tensor]:
        values = torch.linspace(-1, 1, 2 * N, dtype=torch.float64, device=device).requires_grad_()
        x = torch.arange(2.0 * N, dtype=torch.float64, device=device).reshape(N, 2).sin().requires_grad_()
        result = PROGRAMS[program](made(places(N, 2).to(device), values, layout, N), x)
        first = torch.autograd.grad(result.pow(3).sum(), [values, x], create_graph=True)
        return list(torch.autograd.grad(sum(each.square().sum() for each in first), [values, x]))

    expected = outcome(lambda: run(CPU))
    if isinstance(expected, Exception):
        assert isinstance(outcome(lambda: run(DEVICE)), type(expected))
        return
    for ours, theirs in zip(run(DEVICE), expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64], ids=str)
@pytest.mark.parametrize(
    "expression",
    [
        lambda a, b: a @ b,
        lambda a, b: (b.t() @ a.t()).t(),
        lambda a, b: a @ b + a[:, :1] * b[:1],
        lambda a, b: (a @ b - b[0]) * 3,
        lambda a, b: (a @ b).add_(a @ b, alpha=2) + a[0, 0],
        lambda a, b: -(a @ b).t().contiguous().t(),
        lambda a, b: (a @ b)[1:].new_ones(N, N) * (a @ b),
    ],
)
@pytest.mark.each_way
@pytest.mark.sampled(3)
def test_elements_of_expressions(expression: Program, dtype: torch.dtype, layout: torch.layout) -> None:
    numbers = torch.arange(3 * N).reshape(N, 3) % 5 - 2
    a, b, mask = numbers.to(dtype), numbers.t().to(dtype) + 1, made(places(N, 2), torch.ones(2 * N), layout, N)
    ours = expression(a.to(DEVICE), b.to(DEVICE)).sparse_mask(mask.to(DEVICE))
    assert (ours.layout, ours.dtype) == (layout, dtype)
    theirs = expression(a, b) * mask.to_dense().to(dtype)
    torch.testing.assert_close(ours.cpu().to_dense(), theirs, rtol=2e-2, atol=1e-3)


def test_a_matrix_that_is_changed_later_is_looked_at_as_it_was() -> None:
    a = torch.ones(N, 3, device=DEVICE)
    mask = made(places(N, 2), torch.ones(2 * N), torch.sparse_csr, N).to(DEVICE)
    product = a @ a.t()
    a.zero_()
    before = product.sparse_mask(mask)
    product.zero_()
    assert before.values().tolist() == [3] * (2 * N)
    assert product.sparse_mask(mask).values().tolist() == [0] * (2 * N)
