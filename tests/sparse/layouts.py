"""Sparse tensors on the device compared with the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

DEVICE = "pjrt"
CPU = "cpu"
COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
LAYOUTS = (torch.sparse_coo, *COMPRESSED)


def name(layout: torch.layout) -> str:
    return str(layout).removeprefix("torch.sparse_")


def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns the strided tensors of which a tensor is made."""
    if x.layout == torch.sparse_coo:
        return x._indices(), x._values()
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return x.crow_indices(), x.col_indices(), x.values()
    if x.layout in (torch.sparse_csc, torch.sparse_bsc):
        return x.ccol_indices(), x.row_indices(), x.values()
    return (x,)


def to(device: str, tree: Any) -> Any:
    """Returns copies of the tensors on the device, as leaves."""

    def moved(x: torch.Tensor) -> torch.Tensor:
        return x.detach().clone().to(device).requires_grad_(x.requires_grad)

    return pytree.tree_map_only(torch.Tensor, moved, tree)


def assert_same(actual: Any, expected: Any, same_elements: bool = True, **tolerance: float) -> None:
    """Asserts equality of all that a user sees. Sums and products of two may have other elements (as on CUDA)."""
    for ours, theirs in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
        if not isinstance(theirs, torch.Tensor):
            assert ours == theirs
            continue
        assert ours.device.type == DEVICE
        assert (ours.layout, ours.dtype, ours.shape) == (theirs.layout, theirs.dtype, theirs.shape)
        assert all(part.device == ours.device for part in parts(ours))
        here, there = ours.detach().cpu(), theirs.detach()
        if there.layout == torch.sparse_coo:
            assert (here.sparse_dim(), here.dense_dim()) == (there.sparse_dim(), there.dense_dim())
            assert not same_elements or here.is_coalesced() == there.is_coalesced()
        if same_elements:
            for one, other in zip(parts(here), parts(there), strict=True):
                torch.testing.assert_close(one, other, equal_nan=True, **tolerance)
        elif there.layout != torch.strided:
            torch.testing.assert_close(here.to_dense(), there.to_dense(), equal_nan=True, **tolerance)


def assert_same_on_both(program: Callable[[str], Any], same_elements: bool = True, **tolerance: float) -> None:
    assert_same(program(DEVICE), program(CPU), same_elements, **tolerance)


def uncoalesced(dtype: torch.dtype = torch.float64, dense: tuple[int, ...] = ()) -> torch.Tensor:
    """Returns a 3 x 4 tensor of six elements, of which two pairs share a place."""
    indices = torch.tensor([[2, 0, 1, 1, 0, 2], [3, 2, 0, 0, 2, 1]])
    values = torch.arange(1, 6 * torch.Size(dense).numel() + 1).reshape(6, *dense).to(dtype)
    return torch.sparse_coo_tensor(indices, values, (3, 4, *dense), check_invariants=False)


def matrix(layout: torch.layout, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Returns a 4 x 6 matrix, with blocks of 2 x 2."""
    dense = torch.tensor(
        [[1, 0, 2, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 3, 0, 4, 0, 5], [0, 0, 0, 0, -6, 0]], dtype=torch.float64
    ).to(dtype)
    if layout in (torch.sparse_bsr, torch.sparse_bsc):
        return dense.to_sparse(layout=layout, blocksize=(2, 2))
    return dense.to_sparse(layout=layout)
