"""Matrices with more places than int32 can number, whose indices are int32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

DEVICE = "pjrt"
ROWS, COLUMNS = 70_000, 60_000
pytestmark = [pytest.mark.each_way, pytest.mark.filterwarnings("ignore:Sparse")]


def matrix(layout: torch.layout, indices: torch.dtype) -> Tensor:
    """Returns a matrix with elements in the corners, and at places whose int32 numbers would collide."""
    row = torch.tensor([0, 0, 1, 34_999, 35_791, ROWS - 1, ROWS - 1, ROWS - 1])
    column = torch.tensor([1, COLUMNS - 1, 0, 7, 23_648, 0, COLUMNS - 2, COLUMNS - 1])
    values = torch.arange(1.0, row.numel() + 1)
    coo = torch.sparse_coo_tensor(torch.stack([row, column]), values, (ROWS, COLUMNS)).coalesce()
    if layout == torch.sparse_csr:
        csr = coo.to_sparse_csr()
        parts = csr.crow_indices().to(indices), csr.col_indices().to(indices), csr.values()
        return torch.sparse_csr_tensor(*parts, csr.shape)
    csc = coo.to_sparse_csc()
    parts = csc.ccol_indices().to(indices), csc.row_indices().to(indices), csc.values()
    return torch.sparse_csc_tensor(*parts, csc.shape)


def elements(result: Tensor) -> Tensor:
    result = result.cpu()
    if result.layout == torch.strided:
        return result
    if result.layout != torch.sparse_coo:
        result = result.to_sparse()
    result = result.coalesce()
    order = (
        result.indices()[0] * 2 * max(ROWS, COLUMNS) + result.indices()[-1]
    ).argsort()  # MKL's rows are in no order
    return torch.cat([result.indices().double(), result.values().double()[None]])[:, order]


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
@pytest.mark.parametrize(
    "op",
    [
        Tensor.t,
        Tensor.to_sparse,
        Tensor.to_sparse_csr,
        Tensor.to_sparse_csc,
        lambda x: x.to_sparse_bsr((2, 2)),
        lambda x: x.to_sparse_bsc((2, 2)),
        lambda x: x.t().to_sparse_csr(),
        lambda x: x.t().to_sparse_csc(),
        Tensor.sum,
        lambda x: torch.sparse.sum(x.to_sparse(), 0),
        lambda x: x.to_sparse_csr() + x.to_sparse_csr(),
        lambda x: x.t().to_sparse_csr() + x.t().to_sparse_csr() * 2,
        lambda x: x.to_sparse_csr() * x.to_sparse_csr(),
        lambda x: x @ torch.ones(COLUMNS, 2, device=x.device),
        lambda x: x.t() @ torch.ones(ROWS, 2, device=x.device),
        lambda x: x @ x.t(),
        lambda x: x.to_sparse_csr() @ x.t().to_sparse_csr(),
        lambda x: x.to_sparse().index_select(0, torch.tensor([ROWS - 1, 1, ROWS - 1], device=x.device)),
        lambda x: torch.cat([x.to_sparse(), x.to_sparse()], 1).coalesce(),
        lambda x: x.to_sparse().sparse_mask(x.to_sparse()),
        lambda x: torch.sparse.softmax(x.to_sparse(), 1),
        lambda x: torch.sparse.log_softmax(x.to_sparse(), 0),
    ],
)
@pytest.mark.sampled(3)
def test_places_are_numbered_in_64_bits(op: Callable[[Tensor], Tensor], layout: torch.layout) -> None:
    expected = op(matrix(layout, torch.int64))
    result = op(matrix(layout, torch.int32).to(DEVICE))
    assert result.layout == expected.layout
    torch.testing.assert_close(elements(result), elements(expected), check_dtype=False)
