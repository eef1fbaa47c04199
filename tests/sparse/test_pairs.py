"""Two sparse tensors, and picked rows: the number of a result's elements is data. Nothing runs on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torch_pjrt
from tests import fresh
from tests.sparse.layouts import CPU, DEVICE, assert_same, name

Program = Callable[[torch.Tensor, torch.Tensor], Any]
LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


def draw(rows: int, columns: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Returns a matrix with few nonzero elements, none in some rows; integers, so that sums are equal in any order."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(1, 9, (rows, columns), generator=generator) * (
        torch.rand(rows, columns, generator=generator) < 0.3
    )
    drawn[rows // 2] = 0
    return drawn.to(dtype)


def two(layout: torch.layout, device: str, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(draw(7, 7, seed, dtype).to_sparse(layout=layout).to(device) for seed in (0, 1))


def outcome(program: Callable[[], Any]) -> Any:
    try:
        return program()
    except Exception as error:
        return error


def same_or_same_words(program: Callable[[str], Any], same_elements: bool = True) -> None:
    expected = outcome(lambda: program(CPU))
    torch_pjrt.reset_metrics()
    ours = outcome(lambda: program(DEVICE))
    if isinstance(expected, Exception):
        assert isinstance(ours, type(expected)), ours
        assert str(ours)[:30] == str(expected)[:30]
        return
    if isinstance(ours, Exception):
        raise ours
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    assert_same(ours, expected, same_elements)


def gradient(program: Program, a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
    result = program(a, b).to_dense()
    return list(torch.autograd.grad((result * result).sum(), [a, b], allow_unused=True))


PRODUCTS: dict[str, Program] = {
    "@": lambda a, b: a @ b,
    "mm": torch.mm,
    "@ the transposed": lambda a, b: a @ b.t(),
    "the transposed @": lambda a, b: a.t() @ b,
    "of nothing": lambda a, b: a @ torch.zeros_like(b),
    "nothing by it": lambda a, b: torch.zeros_like(a) @ b,
    "of other sizes": lambda a, b: a @ draw(6, 7, 2).to_sparse(layout=a.layout).to(a.device),
    "of no square": lambda a, b: a @ draw(7, 3, 2).to_sparse(layout=a.layout).to(a.device),
    "of another dtype": lambda a, b: a @ b.to(torch.float32),
    "thrice": lambda a, b: a @ b @ a,
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
@pytest.mark.parametrize("program", PRODUCTS)
@pytest.mark.each_way
@pytest.mark.sampled(3)
def test_products(program: str, layout: torch.layout) -> None:
    same_or_same_words(lambda device: PRODUCTS[program](*two(layout, device)), same_elements=layout == torch.sparse_coo)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=name)
def test_dtypes(layout: torch.layout, dtype: torch.dtype) -> None:
    same_or_same_words(lambda device: torch.mm(*two(layout, device, dtype)), same_elements=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_dtypes_of_sums(dtype: torch.dtype) -> None:
    same_or_same_words(lambda device: torch.add(*two(torch.sparse_csr, device, dtype)))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=name)
@pytest.mark.parametrize("program", [torch.mm, torch.sparse.mm, lambda a, b: a @ b @ a], ids=["mm", "smm", "chain"])
def test_gradients_of_products(program: Program, layout: torch.layout) -> None:
    same_or_same_words(lambda device: gradient(program, *two(layout, device)), same_elements=False)


def test_products_of_elements_in_any_order() -> None:
    def run(device: str) -> torch.Tensor:
        a, b = (x.to_sparse() for x in (draw(7, 7, 0), draw(7, 7, 1)))
        one, other = (
            torch.sparse_coo_tensor(x._indices().repeat(1, 2).flip(1), x._values().repeat(2), x.shape).to(device)
            for x in (a, b)
        )
        return one @ other

    same_or_same_words(run)


CSR: dict[str, Program] = {
    "+": lambda a, b: a + b,
    "+ itself": lambda a, b: a + a,
    "+ the same places": lambda a, b: a + a.clone() * 2,
    "+ nothing": lambda a, b: a + torch.zeros_like(a),
    "alpha": lambda a, b: torch.add(a, b, alpha=-2),
    "add_": lambda a, b: a.clone().add_(b, alpha=3),
    "add out": lambda a, b: torch.add(a, b, out=torch.zeros_like(a)),
    "+ of other sizes": lambda a, b: a + (a @ draw(7, 3, 2).to(a.device).to_sparse_csr()),
    "+ of another dtype": lambda a, b: a + b.to(torch.float32),
    "strided + it": lambda a, b: draw(7, 7, 3).to(a.device) + a,
    "strided + CSC": lambda a, b: torch.add(draw(7, 7, 3).to(a.device), a.t(), alpha=2),
    "mm out": lambda a, b: torch.mm(a, b, out=torch.zeros_like(a)),
    "addmm": lambda a, b: torch.addmm(a, a, b),
    "addmm of numbers": lambda a, b: torch.addmm(b, a, b, beta=2, alpha=3),
    "addmm of beta 0": lambda a, b: torch.addmm(b, a, b, beta=0),
    "addmm of a strided one": lambda a, b: torch.addmm(draw(7, 7, 3).to(a.device), a, b, alpha=2),
    "sum of rows": lambda a, b: torch.sum(a, 0, keepdim=True),
    "sum of columns": lambda a, b: torch.sum(a, -1, keepdim=True),
    "sum of both": lambda a, b: torch.sum(a, (0, 1), keepdim=True),
    "sum of integers": lambda a, b: torch.sum(a.to(torch.int32), 0, keepdim=True),
    "sum in another dtype": lambda a, b: torch.sum(a, 1, keepdim=True, dtype=torch.float32),
    "sum that keeps no dimension": lambda a, b: torch._sparse_csr_sum(a, 0, False),
}


@pytest.mark.parametrize("program", CSR)
@pytest.mark.parametrize("indices", [torch.int64, torch.int32], ids=str)
def test_csr(program: str, indices: torch.dtype) -> None:
    def run(device: str) -> torch.Tensor:
        a, b = (
            torch.sparse_csr_tensor(x.crow_indices().to(indices), x.col_indices().to(indices), x.values(), x.shape)
            for x in two(torch.sparse_csr, CPU)
        )
        result = CSR[program](a.to(device), b.to(device))
        if result.layout == torch.sparse_csr:
            return result, result.crow_indices(), torch.tensor(result._nnz(), device=device)
        return result

    same_or_same_words(run, same_elements="mm" not in program)


@pytest.mark.parametrize(
    "program",
    [
        lambda a, b: a @ b,
        lambda a, b: a + b,
        lambda a, b: b.to_dense().sparse_mask(a),
        lambda a, b: torch.sparse.sampled_addmm(a, b.to_dense(), b.to_dense()),
        lambda a, b: torch.addmm(a, a, b),
        lambda a, b: a.sin(),
    ],
    ids=["product", "sum", "mask", "sampled product", "sum with a product", "pointwise"],
)
def test_the_type_of_indices(program: Program) -> None:
    def types(device: str) -> tuple[torch.dtype, torch.dtype]:
        a, b = (
            torch.sparse_csr_tensor(x.crow_indices().int(), x.col_indices().int(), x.values(), x.shape).to(device)
            for x in two(torch.sparse_csr, CPU)
        )
        result = program(a, b)
        return result.crow_indices().dtype, result.col_indices().dtype

    assert types(DEVICE) == types(CPU)


def test_a_sum_of_the_same_places_reads_nothing() -> None:
    a = two(torch.sparse_csr, DEVICE)[0]
    torch_pjrt.reset_metrics()
    total = (a + a * 2 + a.tanh()).values().sum()
    assert torch_pjrt.metrics()["syncs"] == 0
    there = two(torch.sparse_csr, CPU)[0].values()
    torch.testing.assert_close(total.cpu(), (there * 3 + there.tanh()).sum())


def hybrid(device: str) -> torch.Tensor:
    """Returns a tensor of (3, 4, 2, 5) with two sparse dimensions."""
    indices = torch.tensor([[2, 0, 1, 1, 0, 2], [3, 2, 0, 0, 2, 1]])
    values = torch.arange(60, dtype=torch.float64).reshape(6, 2, 5)
    return torch.sparse_coo_tensor(indices, values, (3, 4, 2, 5)).coalesce().to(device)


def long(numbers: list[int], like: torch.Tensor, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(numbers, device=like.device, dtype=dtype)


COO: dict[str, Program] = {
    "rows": lambda a, h: a.index_select(0, long([6, 0, 6, 2], a)),
    "columns": lambda a, h: a.index_select(1, long([1, 5, 5], a)),
    "from the end": lambda a, h: a.index_select(-1, long([3, 1], a)),
    "index of 32 bits": lambda a, h: a.index_select(0, long([2, 2], a, torch.int32)),
    "no rows": lambda a, h: a.index_select(0, long([], a)),
    "rows without elements": lambda a, h: a.index_select(0, long([3, 3], a)),
    "rows that aren't there": lambda a, h: a.index_select(0, long([1, 7], a)),
    "rows before the first": lambda a, h: a.index_select(0, long([1, -8], a)),
    "a dimension that isn't there": lambda a, h: a.index_select(2, long([1], a)),
    "hybrid": lambda a, h: h.index_select(1, long([2, 0, 2], a)),
    "hybrid, dense": lambda a, h: h.index_select(3, long([4, 0], a)),
    "hspmm": lambda a, h: torch.hspmm(a, draw(7, 3, 4).to(a.device)),
    "hspmm of other sizes": lambda a, h: torch.hspmm(a, draw(6, 3, 4).to(a.device)),
    "sspaddmm": lambda a, h: torch.sspaddmm(a, a, draw(7, 7, 4).to(a.device), beta=2, alpha=3),
    "sspaddmm of other sizes": lambda a, h: torch.sspaddmm(a, a, draw(7, 3, 4).to(a.device)),
}


@pytest.mark.parametrize("program", COO)
def test_picked(program: str) -> None:
    def run(device: str) -> torch.Tensor:
        result = COO[program](two(torch.sparse_coo, device)[0], hybrid(device))
        return result.coalesce() if program.startswith("sspaddmm") else result

    same_or_same_words(run)


@pytest.mark.parametrize("dims", [0, 1, (0, 1), 2, (0, 2), (1, 3), (0, 1, 3), (2, 3), -1], ids=str)
def test_gradients_of_sums(dims: Any) -> None:
    def run(device: str) -> torch.Tensor:
        x = hybrid(device).requires_grad_()
        result = torch.sparse.sum(x, dims)
        result = result.to_dense() if result.is_sparse else result
        return torch.autograd.grad(result.square().sum(), x)[0]

    same_or_same_words(run)


def test_other_counts_are_mostly_no_other_programs() -> None:
    sizes = []
    for seed in range(12):
        a, b = (draw(40, 40, seed + many).to_sparse_csr().to(DEVICE) for many in (0, 100))
        if seed == 4:
            torch_pjrt.reset_metrics()
        sizes.append((a @ b)._nnz())
    assert len(set(sizes)) > 8
    assert torch_pjrt.metrics()["graphs_compiled"] <= 8


WITHOUT_KERNELS = """
import torch, torch_pjrt
torch.manual_seed(0)
a, b = ((torch.rand(30, 30) < 0.2) * torch.randn(30, 30) for _ in range(2))
x, y = (one.to_sparse_csr().to("pjrt") for one in (a, b))
torch.testing.assert_close((x @ y).cpu().to_dense(), a @ b)
torch.testing.assert_close((x + y).cpu().to_dense(), a + b)
mask = (torch.randn(30, 2) @ torch.randn(2, 30)).to("pjrt")
torch.testing.assert_close(mask.sparse_mask(x).cpu().to_dense(), mask.cpu() * (a != 0))
assert torch_pjrt.metrics()["host_fallbacks"] == {}, torch_pjrt.metrics()["host_fallbacks"]
print("right")
"""


def test_where_no_kernel_of_the_cpus_is_called(server: fresh.Server) -> None:
    (reported,) = server.run(fresh.Job(WITHOUT_KERNELS, environment={"TORCH_PJRT_LIBRARY_KERNELS": "0"}))
    assert reported.out.strip() == "right"


@pytest.mark.parametrize("other", [torch.int64, torch.float32, torch.complex64, torch.bool], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool], ids=str)
def test_products_of_uncoalesced_tensors_of_two_dtypes(dtype: torch.dtype, other: torch.dtype) -> None:
    """Products that can't be written in place are refused; bools of one place are summed as their numbers."""

    def made(device: str, of: torch.dtype) -> torch.Tensor:
        indices = torch.tensor([[0, 0, 1], [1, 1, 0]], device=device)
        return torch.sparse_coo_tensor(indices, torch.tensor([1, 2, 3], device=device).to(of), (2, 2))

    same_or_same_words(lambda d: (made(d, dtype) * made(d, other)).to_dense())
    same_or_same_words(lambda d: made(d, dtype).mul_(made(d, other)).to_dense())
    if other != torch.bool:  # the CPU has no product of bools, here it is a bool
        same_or_same_words(lambda d: made(d, dtype).coalesce().mul_(made(d, other).coalesce()).to_dense())


@pytest.mark.each_way
def test_products_of_uncoalesced_matrices_while_invariants_are_checked() -> None:
    """The kernels make matrices of their own, in which a place occurs twice."""
    generator = torch.Generator().manual_seed(0)
    indices = torch.randint(0, 9, (3, 200), generator=generator).repeat(1, 2)
    values, dense = torch.rand(400, generator=generator), torch.rand(9, 9, 99, generator=generator)
    with torch.sparse.check_sparse_tensor_invariants():
        for device in (CPU, DEVICE):
            batch = torch.sparse_coo_tensor(indices, values, (9, 9, 9)).to(device)
            matrix = torch.sparse_coo_tensor(indices[1:], values, (9, 9)).to(device).requires_grad_()
            product = torch.sparse.mm(matrix, dense[0].to(device))
            product.sum().backward()
            given = [torch.bmm(batch, dense.to(device)), product.detach(), matrix.grad.to_dense()]
            if device == CPU:
                expected = given
    torch.testing.assert_close([x.cpu() for x in given], expected)


@pytest.mark.each_way
def test_products_leave_the_check_of_invariants_as_it_is() -> None:
    """A graph runs in its own thread, while the user's switches the checks on and off."""
    indices = torch.randint(0, 90, (2, 4000), generator=torch.Generator().manual_seed(0), dtype=torch.int64)
    matrix = torch.sparse_coo_tensor(indices, torch.rand(4000), (90, 90)).to(DEVICE)
    dense = torch.rand(90, 300, device=DEVICE)
    for _ in range(20):
        with torch.sparse.check_sparse_tensor_invariants():
            product = torch.sparse.mm(matrix, dense)
        assert not torch.sparse.check_sparse_tensor_invariants.is_enabled()
        product.cpu()
        assert not torch.sparse.check_sparse_tensor_invariants.is_enabled()
