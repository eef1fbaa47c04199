"""Reads where the ranks' values are equal, and their errors where the values differ."""

import io
import itertools
import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed import get_rank  # as programs have it before there is a world
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from torch_pjrt.distributed import load_by_rank, rank_values, split

N = 4
dist.init_process_group("pjrt", rank=0, world_size=N)
world = init_device_mesh("pjrt", (N,))
grid = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("rows", "columns"))


def refused(what: str, read: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match=rf"^{what}: the 4 ranks .* values of their own.*full_tensor\(\)"):
        read()


x = split(torch.arange(8.0), world)
refused(r"item\(\)", lambda: x.sum().item())
refused(r"item\(\)", lambda: bool((x > 0).all()))
refused(r"item\(\)", x.nonzero)  # its size depends on the values
if os.environ.get("TORCH_PJRT_LIBRARY_KERNELS") == "0":
    refused("aten::.* on the host", lambda: torch.linalg.eigvals(x.reshape(2, 1) @ x.reshape(1, 2)))
else:  # PyTorch's kernel is part of the program, and runs on each rank's values
    found = torch.linalg.eigvals(x.reshape(2, 1) @ x.reshape(1, 2)).real.sum().unsqueeze(0)
    torch.testing.assert_close(
        funcol.all_gather_tensor(found, 0, world.get_group()).cpu(), torch.tensor([1.0, 13, 41, 85])
    )
assert funcol.all_reduce(x.sum(), "sum", world.get_group()).item() == 28
half = funcol.all_reduce(x.sum(), "sum", grid.get_group("columns"))
refused(r"item\(\)", half.item)
assert funcol.all_reduce(half, "sum", grid.get_group("rows")).item() == 28
assert funcol.broadcast(x, 1, world.get_group()).tolist() == [2, 3]
one = torch.ones(3, device="pjrt")
assert (one * 2).sum().item() == 6  # a value that is equal on all ranks
x += 0  # in place, too
refused(r"item\(\)", lambda: x[0].item())
assert torch.zeros_like(x).sum().item() == 0

# Each way to copy values to the host raises, with a cure; print shows whose values it prints.
y = split(torch.arange(8.0), world)
ways: list[Callable[[], object]] = [
    y.tolist,
    y.cpu,
    lambda: y.to("cpu", torch.float16),
    lambda: y.numpy(force=True),
    lambda: torch.zeros(2).copy_(y),
    lambda: torch.zeros(4).__setitem__(0, y.sum()),
    lambda: torch.as_tensor(y, device="cpu"),
    lambda: y.untyped_storage().cpu(),
    lambda: pickle.dumps(y),
    lambda: torch.save({"y": y}, io.BytesIO()),
    lambda: y.long().bincount(minlength=8),
    lambda: y.repeat_interleave(y.long()),
]
for way in ways:
    refused("copy to the host", way)
refused("DLPack", lambda: np.asarray(y))
refused("DLPack", lambda: np.from_dlpack(y))
ways = [y.sum().item, lambda: f"{y.sum():.2f}", lambda: torch.equal(y, y), y.unique, lambda: range(y.long()[1])]
for way in ways:
    refused(r"item\(\)", way)
assert repr(y) == f"{y}" == "tensor([0., 1.], rank='0 of 4', device='pjrt:0')"
assert repr(y.sum()) == "tensor(1., rank='0 of 4', device='pjrt:0')"
assert repr(one) == "tensor([1., 1., 1.], device='pjrt:0')"
assert [values.tolist() for values in rank_values(y)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
assert [values.tolist() for values in rank_values(distribute_tensor(torch.arange(4.0), world, [Shard(0)]))] == [
    [0],
    [1],
    [2],
    [3],
]
summed = funcol.all_reduce(y, "sum", world.get_group())
assert isinstance(summed, funcol.AsyncCollectiveTensor)
assert [values.tolist() for values in rank_values(summed)] == [[12, 16]] * 4
with pytest.raises(ValueError, match="rank_values: a tensor on cpu"):
    rank_values(torch.ones(2))

rank = world.get_local_rank()
assert repr(rank * 2 + 1) == "PerRank([1, 3, 5, 7])"
assert rank * 0 == 0
for use in (lambda: rank == 0 and 1, lambda: [1, 2, 3, 4][rank], lambda: int(rank)):
    with pytest.raises(RuntimeError, match=r"a rank was taken for.*torch_pjrt\.distributed\.split"):
        use()
ranks = torch.zeros(1, dtype=torch.long, device="pjrt") + (rank * 10 + 1)
assert funcol.all_gather_tensor(ranks, 0, world.get_group()).tolist() == [1, 11, 21, 31]
assert funcol.all_gather_tensor((ranks > rank * 10)[:1], 0, world.get_group()).all()
limit = torch.sym_min(3, rank * 2)
assert repr(limit) == "PerRank([0, 2, 3, 3])"
assert repr(torch.sym_max(limit, -rank + 2)) == "PerRank([2, 2, 3, 3])"
assert repr((rank & 1) | 2) == "PerRank([2, 3, 2, 3])"
with pytest.raises(RuntimeError, match=r"taken for a condition.*torch\.sym_min"):
    min(3, rank * 2)

# A group returns each rank's own place in it.
for ranks, group in (([0, 1, 0, 1], grid.get_group("columns")), ([0, 0, 1, 1], grid.get_group("rows"))):
    for asked in (dist.get_rank(group), group.rank(), dist.get_group_rank(group, dist.get_rank(world.get_group()))):
        assert repr(asked) == f"PerRank({ranks})"
    members = dist.get_process_group_ranks(group)
    assert repr(dist.get_global_rank(group, 1)) == repr(members[1])
    assert repr(dist.get_global_rank(group, dist.get_rank(group))) == repr(rank)
    assert dist.get_group_rank(group, members[1]) == 1
    sent = x * 1
    dist.broadcast(sent, src=members[1], group=group)
    assert [values.tolist() for values in rank_values(sent)] == [
        [2.0 * source, 2.0 * source + 1] for source in members[1].values
    ]
for asked in (dist.get_rank(world.get_group()), dist.get_rank(dist.group.WORLD), dist.group.WORLD.rank()):
    assert repr(asked) == repr(rank)
alone = dist.new_group([0, 3])
with pytest.raises(NotImplementedError, match=r"ranks \[0, 3\] alone.*new_group"):
    dist.get_rank(alone)
assert (dist.get_rank(), dist.get_world_size(), torch.pjrt.device_count()) == (0, 4, 1)
with pytest.raises(RuntimeError, match="pjrt"):
    torch.ones(2, device="pjrt:1")


def uses_of(mine: Any) -> list[Callable[[], object]]:
    return [
        lambda: [n for n in range(8) if n % N == mine],
        lambda: range(mine, 8, N),
        lambda: list(range(8))[mine::N],
        lambda: np.arange(mine, 8, N),
        lambda: torch.manual_seed(mine + 1),
        lambda: mine == N - 1 and 1,
        lambda: torch.utils.data.DataLoader(range(8), sampler=range(mine, 8, N)),
    ]


# Without a group, comparisons with 0 and text are the process's, and all that is computed is each rank's.
for mine in (get_rank(), dist.get_rank(), grid.get_rank()):
    assert (mine == 0, bool(mine), mine > 0, mine in (-1, 0), 0 <= mine < N) == (True, False, False, True, True)
    assert (str(mine), f"{mine}{mine:3}", f"{mine!r}") == ("0", "0  0", "PerRank([0, 1, 2, 3])")
    assert repr(mine * 2 + 1) == "PerRank([1, 3, 5, 7])"
    assert mine % torch.pjrt.device_count() == 0
    for use in uses_of(mine):
        with pytest.raises(RuntimeError, match=r"a rank was taken for.*torch_pjrt\.distributed\.load_by_rank"):
            use()
    with pytest.raises(ValueError, match="Indices for islice"):  # Python's, of any error
        itertools.islice(range(8), mine, None, N)

# DTensors are read as whole tensors: partial sums are added, and all shards are compared.
numbers = distribute_tensor(torch.arange(8.0), world, [Shard(0)])
assert (numbers.sum().item(), float(numbers.max()), bool((numbers > 6).any()), bool((numbers > 6).all())) == (
    28, 7, True, False
)  # fmt: skip
assert torch.equal(numbers, numbers * 1)
assert not torch.equal(numbers, numbers + (numbers == 7))
drawn = distribute_tensor(torch.zeros(64, 8), world, [Shard(0)])
torch.nn.init.trunc_normal_(drawn, std=0.02)  # whose bounds it asserts
assert 0.01 < drawn.full_tensor().std().item() < 0.03

# DTensor states that replicas are equal, and a read compares them.
wide = distribute_tensor(torch.arange(8.0), grid, [Replicate(), Shard(0)])
assert wide.full_tensor().sum().item() == 28
mine = split(torch.arange(8.0), grid["rows"])  # 0 to 3 in the first row, 4 to 7 in the second
false = DTensor.from_local(mine, grid, [Replicate(), Shard(0)], run_check=False)
refused(r"item\(\)", lambda: false.full_tensor().sum().item())
refused(r"item\(\)", lambda: (false.full_tensor() + 1).sum().item())
true = DTensor.from_local(mine // 8 + 1, grid, [Replicate(), Shard(0)], run_check=False)  # ones, which isn't known
refused(r"item\(\)", lambda: true.to_local().sum().item())
assert true.full_tensor().sum().item() == 8
assert (true.full_tensor() * 2 + one[0]).sum().item() == 24
assert funcol.all_reduce(true.full_tensor(), "sum", grid.get_group("rows")).sum().item() == 16
refused(r"item\(\)", lambda: funcol.all_reduce(false.full_tensor(), "sum", grid.get_group("columns")).sum().item())
refused(r"item\(\)", lambda: (true.full_tensor().sum() + x.sum()).item())
# A promise applies to all ranks: it doesn't hold for a part of the tensor that is gathered again.
promised = false.full_tensor()
part = split(promised, grid["columns"])
refused(r"item\(\)", lambda: funcol.all_gather_tensor(part, 0, grid.get_group("columns")).sum().item())
scattered = funcol.reduce_scatter_tensor(promised, "sum", 0, grid.get_group("columns"))
refused(r"item\(\)", lambda: funcol.all_gather_tensor(scattered, 0, grid.get_group("columns")).sum().item())
again = DTensor.from_local(promised, grid, [Replicate(), Replicate()], run_check=False)
again = again.redistribute(grid, [Replicate(), Shard(0)]) * 1
refused(r"item\(\)", lambda: again.full_tensor().sum().item())
local = mine.clone().requires_grad_()
whole = DTensor.from_local(local, grid, [Replicate(), Shard(0)], run_check=False).full_tensor()
(gradient,) = torch.autograd.grad((whole * torch.arange(8.0, device="pjrt")).sum(), local)
assert funcol.all_gather_tensor(gradient, 0, grid.get_group("columns")).cpu().tolist() == list(range(8))


# Loaders of each rank's own data.
class OfRank(torch.utils.data.Dataset[dict[str, Any]]):
    def __init__(self, rank: int, size: int, uneven: bool = False) -> None:
        self.numbers = [n for n in range(16) if n % size == rank][rank if uneven else 0 :]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": torch.full((3,), float(self.numbers[i])), "n": self.numbers[i]}


loader = load_by_rank(lambda rank, size: torch.utils.data.DataLoader(OfRank(rank, size), 2), world)
assert len(loader) == 2
for number, batch in enumerate(loader):
    assert [values.tolist() for values in rank_values(batch["n"])] == [
        [8 * number + rank, 8 * number + 4 + rank] for rank in range(N)
    ]
    assert batch["x"].shape == (2, 3)
assert number == 1
for rank, values in enumerate(rank_values(next(iter(load_by_rank(lambda r, n: [torch.tensor(r)], grid["columns"]))))):
    assert values.item() == rank % 2
for uneven, words in (
    (lambda rank, size: torch.utils.data.DataLoader(OfRank(rank, size, True), 1), r"ranks \[3\] of 4 have 1 batches"),
    (
        lambda rank, size: torch.utils.data.DataLoader(OfRank(rank, size, True), 4),
        r"shapes \[\[4, 3\], \[3, 3\].*drop_last",
    ),
    (lambda rank, size: [rank], r"ranks have \[0, 1, 2, 3\] in a batch"),
):
    with pytest.raises(ValueError, match=words):
        list(load_by_rank(uneven, world))
with pytest.raises(ValueError, match="a mesh of 2 dimensions"):
    load_by_rank(lambda rank, size: [], grid)

# Conditions on some ranks only are reported: an assertion, and an index out of range.
torch._assert_async((split(torch.arange(4), world) < 4).all(), "small")
assert (one + 1).sum().item() == 6
torch._assert_async((split(torch.arange(4), world) < 3).all(), "smaller")
with pytest.raises(RuntimeError, match="smaller"):
    (one + 1).sum().item()
chosen = torch.arange(5.0, device="pjrt")[split(torch.tensor([0, 1, 2, 7]), world)]
with pytest.raises(IndexError, match="7"):
    funcol.all_gather_tensor(chosen, 0, world.get_group()).tolist()
print("read")
