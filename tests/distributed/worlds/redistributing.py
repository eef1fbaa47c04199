"""Every redistribution of a DTensor in a world, beside LocalTensorMode's on the CPU: values of each rank."""

import itertools
import json

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import torch_pjrt  # noqa: F401

dist.init_process_group("pjrt", rank=0, world_size=4)
world = init_device_mesh("pjrt", (4,))
grid = init_device_mesh("pjrt", (2, 2))
torch.manual_seed(0)
X = torch.randn(8, 12, 4)
checked = 0


def shards(local: torch.Tensor) -> torch.Tensor:
    gathered = torch.ops._c10d_functional.all_gather_into_tensor(
        local.contiguous().unsqueeze(0), 4, world.get_group().group_name
    )
    return gathered.cpu()


def place(rank: int, mesh_shape: tuple[int, ...]) -> list[int]:
    return [rank] if len(mesh_shape) == 1 else [rank // mesh_shape[1], rank % mesh_shape[1]]


def wanted(placements: tuple[object, ...], mesh_shape: tuple[int, ...], rank: int) -> torch.Tensor:
    """What a rank has of X by its placements; of a Partial the sum is what counts."""
    x = X
    for dim, placement in enumerate(placements):
        if isinstance(placement, Shard):
            x = x.chunk(mesh_shape[dim], placement.dim)[place(rank, mesh_shape)[dim]]
    return x


for mesh in (world, grid):
    one = [Replicate(), Shard(0), Shard(1), Shard(2)] if mesh.ndim == 1 else [Replicate(), Shard(0), Shard(1)]
    layouts = list(itertools.product(one, repeat=mesh.ndim))
    partials = list(itertools.product([*one[:2], Partial()], repeat=mesh.ndim))
    for source, target in itertools.chain(
        itertools.product(layouts, layouts),
        ((p, t) for p in partials if any(q.is_partial() for q in p) for t in layouts),
        ((s, p) for s in layouts for p in partials if any(q.is_partial() for q in p)),
    ):
        start = distribute_tensor(X, mesh, [Replicate() if p.is_partial() else p for p in source])
        if any(p.is_partial() for p in source):  # every rank a part of the sum
            share = 1
            for dim, placement in enumerate(source):
                share *= mesh.size(dim) if placement.is_partial() else 1
            start = DTensor.from_local(start.to_local() / share, mesh, source, run_check=False)
        try:
            result = start.redistribute(mesh, target)
        except (ValueError, RuntimeError) as error:
            if "redistribute from" in str(error) or "not supported" in str(error):
                continue  # PyTorch's own refusal
            raise
        torch.testing.assert_close(result.full_tensor().cpu(), X, msg=f"{source} -> {target}")
        if not any(p.is_partial() for p in target):
            for rank, local in enumerate(shards(result.to_local())):
                torch.testing.assert_close(local, wanted(target, tuple(mesh.shape), rank), msg=f"{source} -> {target}")
        checked += 1
print(json.dumps({"checked": checked}))
