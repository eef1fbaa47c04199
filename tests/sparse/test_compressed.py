"""CSR, CSC, BSR and BSC: made, moved, converted, changed; products of all layouts."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torch_pjrt
from tests.sparse.layouts import COMPRESSED, CPU, DEVICE, LAYOUTS, assert_same, assert_same_on_both, matrix, name, parts


def converted(x: torch.Tensor, layout: torch.layout) -> torch.Tensor:
    if layout in (torch.sparse_bsr, torch.sparse_bsc):
        return x.to_sparse(layout=layout, blocksize=(2, 2))
    return x.to_sparse(layout=layout)


def outcome(program: Callable[[str], Any], device: str) -> Any:
    try:
        return program(device)
    except Exception as error:
        return error


def same_or_same_words(program: Callable[[str], Any], **tolerance: float) -> None:
    expected = outcome(program, CPU)
    if not isinstance(expected, Exception):
        assert_same(program(DEVICE), expected, same_elements=False, **tolerance)
        return
    with pytest.raises(type(expected)) as ours:
        program(DEVICE)
    assert str(ours.value)[:40] == str(expected)[:40]


@pytest.mark.parametrize("other", [*LAYOUTS, torch.strided], ids=name)
@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
def test_conversions(layout: torch.layout, other: torch.layout) -> None:
    def run(device: str) -> torch.Tensor:
        x = matrix(layout).to(device)
        return x.to_dense() if other == torch.strided else converted(x, other)

    same_or_same_words(run)


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
def test_from_strided(layout: torch.layout) -> None:
    assert_same_on_both(lambda device: converted(matrix(torch.sparse_coo).to_dense().to(device), layout))
    assert_same_on_both(lambda device: converted(torch.zeros(4, 6, device=device), layout))


def saved(x: torch.Tensor) -> Any:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file)


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "to": lambda x: x,
    "cpu": lambda x: x.cpu().to(x.device),
    "t": lambda x: x.t(),
    "clone": lambda x: x.clone(),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "save": saved,
    "dtype": lambda x: x.to(torch.float32),
    "zeros_like": torch.zeros_like,
    "values": lambda x: x.values(),
    "facts": lambda x: (x._nnz(), x.sparse_dim(), x.dense_dim(), x.numel()),
    "tanh": lambda x: x.tanh(),
    "neg_": lambda x: x.neg_(),
    "times a number": lambda x: x * 2,
    "fill_": lambda x: x.fill_(3),
    "zero_": lambda x: x.zero_(),
    "sum": lambda x: x.sum(),
    "sum of a dim": lambda x: torch.sum(x, 1, keepdim=True),
    "a row": lambda x: x[2],
    "sum of two": lambda x: x + x,
    "sum with a strided one": lambda x: x.to_dense() + x,
    "product of elements": lambda x: x * x,
    "product of elements with a strided one": lambda x: x * x.to_dense(),
    "mask": lambda x: torch.ones(4, 6, dtype=x.dtype, device=x.device).sparse_mask(x),
}


@pytest.mark.parametrize("layout", COMPRESSED, ids=name)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_on_the_cpu(program: str, layout: torch.layout) -> None:
    same_or_same_words(lambda device: PROGRAMS[program](matrix(layout).to(device)))


@pytest.mark.parametrize("layout", COMPRESSED, ids=name)
def test_deepcopy(layout: torch.layout) -> None:
    assert_same(copy.deepcopy(matrix(layout).to(DEVICE)), matrix(layout))


def dense(rows: int, columns: int, device: str, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.arange(rows * columns, dtype=torch.float64).reshape(rows, columns).sin().to(device, dtype)


PRODUCTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "@": lambda s: s @ dense(6, 3, s.device),
    "transposed @": lambda s: s.t() @ dense(4, 3, s.device),
    "@ from the right": lambda s: dense(3, 4, s.device) @ s,
    "@ of columns": lambda s: s @ dense(3, 6, s.device).t(),
    "mv": lambda s: s @ dense(6, 1, s.device)[:, 0],
    "addmm": lambda s: torch.addmm(dense(4, 3, s.device), s, dense(6, 3, s.device), beta=0.5, alpha=2),
    "addmm of a row": lambda s: torch.addmm(dense(1, 3, s.device)[0], s, dense(6, 3, s.device)),
    "addmm from the right": lambda s: torch.addmm(dense(3, 6, s.device), dense(3, 4, s.device), s, alpha=2),
    "addmm out": lambda s: torch.addmm(
        dense(4, 3, s.device), s, dense(6, 3, s.device), out=dense(4, 3, s.device)
    ),
    "sparse.addmm": lambda s: torch.sparse.addmm(dense(4, 3, s.device), s, dense(6, 3, s.device), beta=0.5),
    "addmv": lambda s: torch.addmv(dense(4, 1, s.device)[:, 0], s, dense(6, 1, s.device)[:, 0], beta=2),
    "linear": lambda s: torch.nn.functional.linear(dense(3, 6, s.device), s),
    "of nothing": lambda s: s @ dense(6, 0, s.device),
    "of other sizes": lambda s: s @ dense(5, 3, s.device),
    "of another dtype": lambda s: s @ dense(6, 3, s.device, torch.float32),
    "sparse": lambda s: s @ s.t(),
    "mean": lambda s: torch.sparse.mm(s, dense(6, 3, s.device), "mean"),
    "amax": lambda s: torch.sparse.mm(s, dense(6, 3, s.device), "amax"),
    "max": lambda s: torch.sparse.mm(s, dense(6, 3, s.device), "max"),
    "sampled": lambda s: torch.sparse.sampled_addmm(s, dense(4, 2, s.device), dense(2, 6, s.device), beta=0.5, alpha=2),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.each_way
def test_products(product: str, layout: torch.layout) -> None:
    same_or_same_words(lambda device: PRODUCTS[product](matrix(layout).to(device)))


def test_products_of_blocks_that_are_no_squares() -> None:
    def run(device: str) -> torch.Tensor:
        return matrix(torch.sparse_coo).to_dense().to(device).to_sparse_bsr((2, 3)) @ dense(6, 3, device)

    same_or_same_words(run)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64, torch.bfloat16, torch.bool], ids=str)
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=name)
def test_products_of_dtypes(layout: torch.layout, dtype: torch.dtype) -> None:
    def run(device: str) -> torch.Tensor:
        return matrix(layout, dtype).to(device) @ torch.ones(6, 3, dtype=dtype, device=device)

    same_or_same_words(run, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("order", ["rows", "columns", "none"])
@pytest.mark.each_way
def test_large_products_of_coo(order: str) -> None:
    indices = torch.stack([torch.randint(50, (900,)), torch.randint(40, (900,))])
    if order != "none":
        key = indices[0] * 40 + indices[1] if order == "rows" else indices[1] * 50 + indices[0]
        indices = indices[:, key.argsort()]
    values, x = torch.randn(900), torch.randn(40, 64)
    assert_same_on_both(
        lambda device: torch.sparse_coo_tensor(indices, values, (50, 40)).to(device) @ x.to(device),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("place", [-1, 40])
@pytest.mark.parametrize("count", [3, 900])
def test_indices_out_of_range_are_reported(place: int, count: int) -> None:
    indices = torch.zeros(2, count, dtype=torch.int64)
    indices[1, 1] = place

    def run(device: str) -> torch.Tensor:
        sparse = torch.sparse_coo_tensor(indices, torch.ones(count), (50, 40), check_invariants=False).to(device)
        return (sparse @ torch.ones(40, 64, device=device)).cpu()

    for device in (CPU, DEVICE):
        with pytest.raises(RuntimeError, match="index out of column bound: " + str(place)):
            run(device)


def test_batches() -> None:
    def run(device: str) -> torch.Tensor:
        sparse = torch.stack([matrix(torch.sparse_coo).to(device), 2 * matrix(torch.sparse_coo).to(device)])
        x = torch.stack([dense(6, 3, device), dense(6, 3, device) + 1])
        return [sparse.bmm(x), torch.bmm(sparse, x, out=torch.empty(2, 4, 3, dtype=torch.float64, device=device))]

    assert_same_on_both(run)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize(
    "make",
    [
        lambda device, check: torch.sparse_csr_tensor(
            torch.tensor([0, 2, 3], device=device), torch.tensor([0, 1, 1], device=device),
            torch.tensor([1.0, 2, 3], device=device), (2, 3), check_invariants=check),
        lambda device, check: torch.sparse_csr_tensor([0, 2, 3], [0, 1, 1], [1.0, 2, 3], device=device),
        lambda device, check: torch.sparse_csc_tensor(
            torch.tensor([0, 2, 3], device=device, dtype=torch.int32),
            torch.tensor([0, 1, 1], device=device, dtype=torch.int32),
            torch.tensor([1.0, 2, 3], device=device), check_invariants=check),
        lambda device, check: torch.sparse_bsr_tensor(
            torch.tensor([0, 1], device=device), torch.tensor([1], device=device),
            torch.ones(1, 2, 3, device=device), (2, 6), check_invariants=check),
        lambda device, check: torch.sparse_bsc_tensor(
            torch.tensor([0, 1], device=device), torch.tensor([0], device=device),
            torch.ones(1, 2, 3, device=device), check_invariants=check),
        lambda device, check: torch.sparse_csr_tensor(  # columns beyond
            torch.tensor([0, 2, 3], device=device), torch.tensor([0, 1, 7], device=device),
            torch.tensor([1.0, 2, 3], device=device), (2, 3), check_invariants=True),
        lambda device, check: torch.sparse_csr_tensor(  # columns twice
            torch.tensor([0, 2, 3], device=device), torch.tensor([1, 1, 1], device=device),
            torch.tensor([1.0, 2, 3], device=device), (2, 3), check_invariants=True),
        lambda device, check: torch.sparse_csr_tensor(  # ends that go down
            torch.tensor([0, 3, 2], device=device), torch.tensor([0, 1, 1], device=device),
            torch.tensor([1.0, 2, 3], device=device), (2, 3), check_invariants=True),
        lambda device, check: torch.empty(2, 3, layout=torch.sparse_csr, device=device),
        lambda device, check: torch.zeros(2, 3, layout=torch.sparse_csr, device=device),
    ],
)  # fmt: skip
@pytest.mark.parametrize("check", [True, False])
def test_constructors(make: Callable[..., torch.Tensor], check: bool) -> None:
    same_or_same_words(lambda device: make(device, check))


def test_printing() -> None:
    shown = str(matrix(torch.sparse_csr).to(DEVICE))
    assert "crow_indices=tensor([0, 2, 2, 5, 6])" in shown
    assert "device='pjrt:0'" in shown
    assert "layout=torch.sparse_csr" in shown


def test_a_product_is_one_op() -> None:
    x = matrix(torch.sparse_csr).to(DEVICE)
    y = dense(6, 3, DEVICE)
    torch_pjrt.reset_metrics()
    z = x @ y
    assert torch_pjrt.metrics()["syncs"] == 0
    z.cpu()
    assert torch_pjrt.metrics()["executions"] == 1
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.each_way
def test_indices_with_gaps_between_them() -> None:
    """The CPU's conversion ignores gaps between indices."""
    edges = torch.tensor([[0, 1], [1, 2], [2, 0], [2, 2]]).to(DEVICE).t()
    sparse = torch.sparse_coo_tensor(edges, torch.ones(4, device=DEVICE), (3, 3), is_coalesced=True)
    assert sparse.to_sparse_csr().crow_indices().tolist() == [0, 1, 2, 4]
    assert_same(sparse.to_sparse_csr().to_dense(), sparse.cpu().to_dense())


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr], ids=name)
def test_what_memory_held_before_is_nothing_to_a_product(layout: torch.layout) -> None:
    """The kernel writes a program's buffer, which holds arbitrary values before, even NaN."""
    sparse, x = matrix(layout, torch.float32), torch.randn(6, 4096)
    ends, plain, values = parts(sparse) if layout != torch.sparse_coo else (*sparse._indices(), sparse._values())
    out = torch.full((4, 4096), torch.nan)
    torch.ops.torch_pjrt.sparse_mm.out(ends, plain, values, x, name(layout), 4, out=out)
    torch.testing.assert_close(out, sparse.to_dense() @ x)
    if layout == torch.sparse_bsr:
        return
    left, right, found = torch.randn(4, 32), torch.randn(32, 6), torch.full((len(plain),), torch.nan)
    torch.ops.torch_pjrt.sparse_sampled_mm.out(ends, plain, left, right.t(), name(layout), out=found)
    there = torch.sparse_coo_tensor(sparse.to_sparse_coo().coalesce().indices(), torch.ones(len(plain)), sparse.shape)
    expected = (left @ right * there.to_dense()).to_sparse(layout=layout)
    torch.testing.assert_close(found, expected.values() if layout != torch.sparse_coo else expected._values())


@pytest.mark.each_way
@pytest.mark.parametrize("layout", COMPRESSED, ids=name)
def test_products_have_the_cpus_layout(layout: torch.layout) -> None:
    sparse = matrix(layout, torch.float32)
    left, right = torch.randn(3, sparse.shape[0]), torch.randn(sparse.shape[1], 3)

    def products(device: str) -> list[Any]:
        x, a, b = sparse.to(device), left.to(device), right.to(device)
        of = [lambda: a @ x, lambda: x @ b, lambda: torch.stack([a, a]) @ x]
        return [outcome(lambda _, f=f: f().stride(), device) for f in of]

    for ours, theirs in zip(products(DEVICE), products(CPU), strict=True):
        assert ours == theirs if isinstance(theirs, tuple) else isinstance(ours, Exception)
