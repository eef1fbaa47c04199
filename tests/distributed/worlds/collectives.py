"""Every collective of a world in one process, in every dtype over all ranks, in some over both dimensions of a mesh.

Rank r has the r-th row of a table, and the results of all ranks are read by gathering them.
"""

import functools
import json
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh

import torch_pjrt
from torch_pjrt.distributed import split

N = 4
dist.init_process_group("pjrt", rank=0, world_size=N)
world = init_device_mesh("pjrt", (N,))
grid = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("rows", "columns"))
GROUPS = {
    "world": (world.get_group(), [[0, 1, 2, 3]]),
    "rows": (grid.get_group("rows"), [[0, 2], [1, 3]]),
    "columns": (grid.get_group("columns"), [[0, 1], [2, 3]]),
}
DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.uint16, torch.uint32, torch.uint64,
]  # fmt: skip
JOINS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum,
    "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor,
}  # fmt: skip
checked = 0
pending: list[tuple[torch.Tensor, list[torch.Tensor], str]] = []  # results of one program, read together


def table(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Returns a row for each rank: small numbers, so that sums and products are exact in every dtype."""
    torch.manual_seed(1)
    numbers = torch.randint(0 if dtype == torch.bool else 1, 2 if dtype == torch.bool else 4, (N, *shape))
    return numbers.to(dtype)


def of_each_rank(rows: torch.Tensor) -> torch.Tensor:
    return split(rows, world).squeeze(0)


def check(result: torch.Tensor, wanted: list[torch.Tensor], what: str) -> None:
    pending.append((funcol.all_gather_tensor(result.unsqueeze(0), 0, world.get_group()), wanted, what))


def read() -> None:
    global checked
    torch_pjrt.sync(gathered for gathered, _, _ in pending)
    for gathered, wanted, what in pending:
        of_ranks = gathered.cpu()
        bits = {torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}.get(of_ranks.dtype)
        for rank in range(N):
            found, right = of_ranks[rank], wanted[rank]
            assert (found.shape, found.dtype) == (right.shape, right.dtype), (what, rank)
            same = torch.equal(found.view(bits), right.view(bits)) if bits else torch.equal(found, right)
            assert same, (what, rank, found, right)
        checked += 1
    pending.clear()


def members(groups: list[list[int]], rank: int) -> list[int]:
    return next(group for group in groups if rank in group)


def reductions(dtype: torch.dtype) -> list[str]:
    if dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        return []
    if dtype == torch.bool or not (dtype.is_floating_point or dtype.is_complex):
        exotic = dtype in (torch.uint16, torch.uint32, torch.uint64)  # the CPU hasn't these
        return ["sum"] if exotic else list(JOINS)
    return ["sum", "product"] if dtype.is_complex else ["sum", "product", "min", "max"]


def join(name: str, values: list[torch.Tensor]) -> torch.Tensor:
    if name == "sum" and values[0].dtype in (torch.uint16, torch.uint32, torch.uint64):
        return sum(value.long() for value in values).to(values[0].dtype)
    if name == "sum" and values[0].dtype == torch.bool:
        return torch.stack(values).any(0)
    return functools.reduce(JOINS[name], values)


for dtype in DTYPES:
    rows = table(dtype, 8, 3)
    x = of_each_rank(rows)
    for name, (group, groups) in GROUPS.items():
        if name != "world" and dtype not in (torch.float32, torch.int64):
            continue  # groups don't look at dtypes
        what = f"{dtype} {name}"
        size = len(groups[0])
        of = [[rows[r] for r in members(groups, rank)] for rank in range(N)]
        place = [members(groups, rank).index(rank) for rank in range(N)]
        check(funcol.all_gather_tensor(x, 0, group), [torch.cat(values) for values in of], f"all_gather {what}")
        for reduction in reductions(dtype):
            sums = [join(reduction, values) for values in of]
            check(funcol.all_reduce(x, reduction, group), sums, f"all_reduce {reduction} {what}")
            parts = [sums[rank].chunk(size)[place[rank]] for rank in range(N)]
            check(funcol.reduce_scatter_tensor(x, reduction, 0, group), parts, f"reduce_scatter {reduction} {what}")
        if (dtype.is_floating_point and dtype.itemsize > 1) or dtype.is_complex:
            means = [
                (join("sum", values).cfloat() if dtype.is_complex else join("sum", values)) / size for values in of
            ]
            check(funcol.all_reduce(x, "avg", group), [mean.to(dtype) for mean in means], f"all_reduce avg {what}")
        swapped = [torch.cat([v.chunk(size)[place[rank]] for v in of[rank]]) for rank in range(N)]
        check(funcol.all_to_all_single(x, None, None, group), swapped, f"all_to_all {what}")
        for source in range(size):
            sent = [values[source] for values in of]
            check(funcol.broadcast(x, source, group), sent, f"broadcast {source} {what}")
        read()  # larger programs take longer to compile than their parts

# c10d's own functions write to their arguments.
x = of_each_rank(rows := table(torch.float32, 8))
dist.all_reduce(x)
check(x, [rows.sum(0)] * N, "c10d all_reduce")
into = torch.empty(N * 8, device="pjrt")
dist.all_gather_into_tensor(into, of_each_rank(rows))
check(into, [rows.flatten()] * N, "c10d all_gather_into_tensor")
lists = [torch.empty(8, device="pjrt") for _ in range(N)]
dist.all_gather(lists, of_each_rank(rows))
check(torch.stack(lists), [rows] * N, "c10d all_gather")
part = torch.empty(2, device="pjrt")
dist.reduce_scatter_tensor(part, of_each_rank(rows))
check(part, list(rows.sum(0).chunk(N)), "c10d reduce_scatter_tensor")
swapped_into = torch.empty(8, device="pjrt")
dist.all_to_all_single(swapped_into, of_each_rank(rows))
check(swapped_into, [torch.cat([rows[s].chunk(N)[r] for s in range(N)]) for r in range(N)], "c10d all_to_all_single")
sent = of_each_rank(rows)
dist.broadcast(sent, 2)
check(sent, [rows[2]] * N, "c10d broadcast")
scattered = torch.empty(2, device="pjrt")
dist.scatter(scattered, [t.clone() for t in of_each_rank(rows).chunk(N)], src=0)
check(scattered, list(rows[0].chunk(N)), "c10d scatter")
dist.barrier()
objects = [None] * N
dist.all_gather_object(objects, {"step": 3})
assert objects == [{"step": 3}] * N

# Empty tensors, tensors of one element, and rows that don't divide.
check(
    funcol.all_reduce(of_each_rank(table(torch.float32)), "sum", world.get_group()),
    [table(torch.float32).sum()] * N,
    "0-d",
)
check(
    funcol.all_gather_tensor(of_each_rank(table(torch.float32, 3, 0)), 0, world.get_group()),
    [torch.zeros(12, 0)] * N,
    "empty",
)
with pytest.raises((ValueError, AssertionError), match="6"):
    funcol.reduce_scatter_tensor(of_each_rank(table(torch.float32, 6)), "sum", 0, world.get_group())

# Collectives are differentiable.
w = of_each_rank(table(torch.float32, 4)).requires_grad_()
y = funcol.all_gather_tensor_autograd(w, 0, world.get_group())
(y * torch.arange(16.0, device="pjrt")).sum().backward()
check(w.grad, [4 * torch.arange(16.0).chunk(N)[rank] for rank in range(N)], "gradients")
read()

metrics = torch_pjrt.metrics()
assert metrics["host_fallbacks"] == {}, metrics["host_fallbacks"]
print(json.dumps({"checked": checked}))
