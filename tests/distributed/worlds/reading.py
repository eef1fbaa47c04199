"""What a read gives where the ranks' values are equal, and what it says where they are not."""

import os
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from torch_pjrt.distributed import split

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
refused(r"item\(\)", x.nonzero)  # whose size depends on the values
if os.environ.get("TORCH_PJRT_KERNELS") == "0":
    refused("aten::.* on the host", lambda: torch.linalg.eigvals(x.reshape(2, 1) @ x.reshape(1, 2)))
else:  # PyTorch's kernel is a part of the program, on each rank's values
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
assert (one * 2).sum().item() == 6  # a value that was never told apart
x += 0  # in place, too
refused(r"item\(\)", lambda: x[0].item())
assert torch.zeros_like(x).sum().item() == 0

y = split(torch.arange(8.0), world)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert y.cpu().tolist() == [0, 1]
    assert "[0., 1.]" in repr(y)
assert len(caught) == 1
assert "shows the first rank's" in str(caught[0].message)

rank = world.get_local_rank()
assert repr(rank * 2 + 1) == "PerRank([1, 3, 5, 7])"
assert rank * 0 == 0
for use in (lambda: rank == 0 and 1, lambda: [1, 2, 3, 4][rank], lambda: int(rank)):
    with pytest.raises(RuntimeError, match=r"a rank was taken for.*torch_pjrt\.distributed\.split"):
        use()
ranks = torch.zeros(1, dtype=torch.long, device="pjrt") + (rank * 10 + 1)
assert funcol.all_gather_tensor(ranks, 0, world.get_group()).tolist() == [1, 11, 21, 31]
assert funcol.all_gather_tensor((ranks > rank * 10)[:1], 0, world.get_group()).all()
assert (dist.get_rank(), dist.get_world_size(), torch.pjrt.device_count()) == (0, 4, 1)
with pytest.raises(RuntimeError, match="pjrt"):
    torch.ones(2, device="pjrt:1")

# DTensor says that replicas are equal, and a read compares them.
wide = distribute_tensor(torch.arange(8.0), grid, [Replicate(), Shard(0)])
assert wide.full_tensor().sum().item() == 28
mine = split(torch.arange(8.0), grid["rows"])  # 0 to 3 in the first row, 4 to 7 in the second
false = DTensor.from_local(mine, grid, [Replicate(), Shard(0)], run_check=False)
refused(r"item\(\)", lambda: false.full_tensor().sum().item())
refused(r"item\(\)", lambda: (false.full_tensor() + 1).sum().item())
true = DTensor.from_local(mine // 8 + 1, grid, [Replicate(), Shard(0)], run_check=False)  # ones, which nobody knows
refused(r"item\(\)", lambda: true.to_local().sum().item())
assert true.full_tensor().sum().item() == 8
assert (true.full_tensor() * 2 + one[0]).sum().item() == 24
assert funcol.all_reduce(true.full_tensor(), "sum", grid.get_group("rows")).sum().item() == 16
refused(r"item\(\)", lambda: funcol.all_reduce(false.full_tensor(), "sum", grid.get_group("columns")).sum().item())
refused(r"item\(\)", lambda: (true.full_tensor().sum() + x.sum()).item())
# A promise is of all ranks: it holds for no part of what it says, gathered again.
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

# An index out of range on the last rank alone is told.
chosen = torch.arange(5.0, device="pjrt")[split(torch.tensor([0, 1, 2, 7]), world)]
with pytest.raises(IndexError, match="7"):
    funcol.all_gather_tensor(chosen, 0, world.get_group()).tolist()
print("read")
