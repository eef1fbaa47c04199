"""COO tensors: made, moved, read and changed."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torch_pjrt
from tests.sparse.layouts import DEVICE, assert_same, assert_same_on_both, parts, uncoalesced

Program = Callable[[torch.Tensor], Any]


def saved(x: torch.Tensor) -> Any:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file)


PROGRAMS: dict[str, Program] = {
    "to": lambda x: x,
    "coalesce": lambda x: x.coalesce(),
    "indices and values": lambda x: (x.coalesce().indices(), x.coalesce().values(), x._indices(), x._values()),
    "facts": lambda x: (x._nnz(), x.is_coalesced(), x.sparse_dim(), x.dense_dim(), x.numel(), x.is_sparse),
    "to_dense": lambda x: x.to_dense(),
    "to_sparse": lambda x: x.to_dense().to_sparse(),
    "to_sparse of one dimension": lambda x: x.to_dense().to_sparse(1),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((1, 2)),
    "bsc": lambda x: x.to_sparse_bsc((3, 2)),
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(0, 1).coalesce(),
    "permute": lambda x: x.permute(1, 0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "cat": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x]),
    "narrow_copy": lambda x: x.coalesce().narrow_copy(0, 1, 2),
    "select": lambda x: x.coalesce()[1],
    "clone": lambda x: x.clone(),
    "dtype": lambda x: x.to(torch.float32),
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "save": saved,
    "zeros_like": torch.zeros_like,
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: torch.zeros_like(x).copy_(x),
    "resize": lambda x: x.sparse_resize_((5, 6), 2, 0),
    "resize and clear": lambda x: x.sparse_resize_and_clear_((2, 2), 1, 1),
    "resize_as": lambda x: torch.zeros_like(x).resize_as_sparse_(x),
    "detach": lambda x: x.detach(),
    "cpu": lambda x: x.cpu().to(x.device),
    "any": lambda x: x.any(),
    "isnan": lambda x: x.isnan(),
    "tanh": lambda x: x.tanh(),
    "neg_": lambda x: x.neg_(),
    "sqrt out": lambda x: torch.sqrt(x, out=torch.zeros_like(x)),
    "pow": lambda x: x**2,
    "times a number": lambda x: x * 2.5,
    "over a number": lambda x: x / 2,
    "over a tensor": lambda x: x / torch.tensor(2.0, dtype=x.dtype, device=x.device),
    "sum": lambda x: x.sum(),
    "sparse.sum": lambda x: torch.sparse.sum(x),
    "sum of dim 0": lambda x: torch.sparse.sum(x, 0),
    "sum of dims": lambda x: torch.sparse.sum(x, (0, 1)),
    "norm": lambda x: x.norm(),
    "norm of 1": lambda x: torch.norm(x, 1),
    "softmax": lambda x: torch.sparse.softmax(x, 1),
    "log_softmax": lambda x: torch.sparse.log_softmax(x, 0),
    "index_select": lambda x: x.coalesce().index_select(0, torch.tensor([2, 0, 2], device=x.device)),
    "mask of a strided one": lambda x: torch.ones(3, 4, dtype=x.dtype, device=x.device).sparse_mask(x),
    "mask": lambda x: (x * 3).sparse_mask(x.coalesce()),
    "mask that is uncoalesced": lambda x: x.coalesce().sparse_mask(x),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_on_the_cpu(program: str) -> None:
    run = PROGRAMS[program]
    assert_same(run(uncoalesced().to(DEVICE)), run(uncoalesced()))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x + x,
        lambda x: x - x.coalesce() * 2,
        lambda x: x.coalesce() + x.coalesce(),
        lambda x: torch.add(x, x, alpha=3),
        lambda x: x.clone().add_(x),
        lambda x: x.clone().sub_(x.coalesce(), alpha=2),
        lambda x: x * x,
        lambda x: x.coalesce() * (x.coalesce() + 1 * x),
        lambda x: x.clone().mul_(x),
        lambda x: x * x.to_dense(),
        lambda x: x.to_dense() * x,
        lambda x: x.to_dense() + x,
        lambda x: torch.sub(x.to_dense(), x, alpha=0.5),
        lambda x: x.to_dense().add_(x, alpha=0.5),
        lambda x: x.to_dense().t().add_(x.t()),
        lambda x: x + torch.zeros_like(x),
        lambda x: torch.zeros_like(x) + x,
        lambda x: x + x.to(torch.float32),
        lambda x: x.to_dense().to(torch.bfloat16) + x.to(torch.bfloat16),
        lambda x: torch.add(x, x, out=torch.zeros_like(x)),
    ],
)
@pytest.mark.each_way
def test_sums_and_products(program: Program) -> None:
    """Values are the CPU's; which elements hold them is as on CUDA, where nothing is read."""
    assert_same_on_both(lambda device: program(uncoalesced().to(device)), same_elements=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda device: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (3, 4), device=device),
        lambda device: torch.sparse_coo_tensor(torch.tensor([[0, 2]], device=device), torch.ones(2, device=device)),
        lambda device: torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2), device=device),
        lambda device: torch.sparse_coo_tensor((3, 4), device=device),
        lambda device: torch.sparse_coo_tensor(
            torch.tensor([[0, 2]], device=device), torch.ones(2, 5, device=device), (4, 5), check_invariants=True
        ),
        lambda device: torch.zeros(3, 4, layout=torch.sparse_coo, device=device, dtype=torch.int64),
        lambda device: torch.eye(3, device=device).to_sparse(),
        lambda device: torch.zeros(3, 3, device=device).to_sparse().coalesce(),
        lambda device: torch.zeros(0, 3, device=device).to_sparse().to_dense(),
        lambda device: uncoalesced(dense=(2, 3)).to(device).coalesce(),
        lambda device: uncoalesced(torch.bool).to(device).coalesce(),
        lambda device: uncoalesced(torch.int32).to(device).coalesce(),
        lambda device: uncoalesced(torch.bfloat16).to(device).coalesce(),
        lambda device: uncoalesced(torch.complex64).to(device).coalesce(),
        lambda device: uncoalesced(dense=(2,)).to(device).to_dense(),
        lambda device: torch.sparse_coo_tensor(torch.empty(0, 3, dtype=torch.int64), torch.ones(3), ()).to(device)
        .coalesce(),
        lambda device: torch.sparse_coo_tensor(torch.empty(2, 0, dtype=torch.int64), torch.ones(0), (2, 2)).to(device)
        .coalesce(),
    ],
)  # fmt: skip
def test_constructors(make: Callable[[str], torch.Tensor]) -> None:
    assert_same_on_both(make)


@pytest.mark.parametrize(
    "make",
    [
        lambda device: torch.sparse_coo_tensor(
            torch.tensor([[0, 5]], device=device), torch.ones(2, device=device), (3,), check_invariants=True
        ),
        lambda device: torch.sparse_coo_tensor(
            torch.tensor([[0, -1]], device=device), torch.ones(2, device=device), (3,), check_invariants=True
        ),
        lambda device: torch.sparse_coo_tensor(
            torch.tensor([[0, 1]], device=device), torch.ones(3, device=device), (3,), check_invariants=True
        ),
        lambda device: uncoalesced().to(device).indices(),
        lambda device: uncoalesced().to(device) + uncoalesced().to(device).t(),
        lambda device: uncoalesced().to(device) @ torch.ones(3, 2, dtype=torch.float64, device=device),
        lambda device: uncoalesced().to(device) @ torch.ones(4, 2, device=device),
        lambda device: uncoalesced().to(device) + 1,
        lambda device: uncoalesced().to(device).reshape(2, 6),
        lambda device: torch.sparse.softmax(uncoalesced().to(device), 7),
        lambda device: uncoalesced().to(device).storage(),
        lambda device: uncoalesced().to(device) + uncoalesced().to(device).to_sparse_csr(),
        lambda device: torch.cumsum(uncoalesced().to(device), 0),
    ],
)
def test_mistakes_are_told_in_the_cpus_words(make: Callable[[str], torch.Tensor]) -> None:
    with pytest.raises(Exception) as theirs:
        make("cpu")
    with pytest.raises(type(theirs.value)) as ours:
        make(DEVICE)
    words = str(theirs.value).split("\n")[0]
    assert str(ours.value).split("\n")[0][:40] == words[:40]


def test_printing() -> None:
    shown = str(uncoalesced().to(DEVICE).coalesce())
    assert "indices=tensor([[0, 1, 2, 2]" in shown
    assert "device='pjrt:0', size=(3, 4), nnz=4" in shown.replace("\n      ", "")
    assert "layout=torch.sparse_coo" in shown


def test_indices_and_values_are_tensors_of_the_device() -> None:
    x = uncoalesced().to(DEVICE)
    assert all(part.device.type == DEVICE and part.layout == torch.strided for part in parts(x))
    x._values().mul_(2)  # the tensor's own memory
    assert_same(x, uncoalesced() * 2)


def test_two_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="device"):
        _ = uncoalesced() + uncoalesced().to(DEVICE)
    with pytest.raises(RuntimeError, match="device"):
        _ = uncoalesced().to(DEVICE) @ torch.ones(4, 2, dtype=torch.float64)


def test_sums_and_products_read_nothing() -> None:
    there = uncoalesced().coalesce()
    x = there.to(DEVICE)
    torch_pjrt.reset_metrics()
    y = ((x + x) * x * 2 + x.tanh()).to_dense() + x
    assert torch_pjrt.metrics()["syncs"] == 0
    torch.testing.assert_close(y.cpu(), ((there * 2) * there * 2 + there.tanh()).to_dense() + there.to_dense())
