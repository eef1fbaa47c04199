"""Every redistribution of a DTensor in a world, beside what LocalTensorMode gave on the CPU (oracle.py): each rank's
values, but for padding (Note [Ragged])."""

import itertools
import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import torch_pjrt
from tests.distributed.redistributions import SHAPES, numbered, starts

RANKS = 4
wanted: dict[tuple[Any, ...], list[torch.Tensor]] = torch.load(sys.argv[1])
dist.init_process_group("pjrt", rank=0, world_size=RANKS)
world = init_device_mesh("pjrt", (RANKS,))
grid = init_device_mesh("pjrt", (2, 2))
pending: list[tuple[Any, torch.Tensor, torch.Tensor]] = []
checked = 0


def of_ranks(local: torch.Tensor) -> torch.Tensor:
    gathered: torch.Tensor = torch.ops._c10d_functional.all_gather_into_tensor(
        local.contiguous().unsqueeze(0), RANKS, world.get_group().group_name
    )
    return gathered


def read() -> None:
    global checked
    torch_pjrt.sync(tensor for _, *tensors in pending for tensor in tensors)
    for case, gathered, whole in pending:
        for rank, right in enumerate(wanted[case]):
            found = gathered[rank][tuple(map(slice, right.shape))].cpu()
            assert torch.equal(found, right), (case, rank, found, right)
        assert torch.equal(whole.cpu(), numbered(case[0])), case
        checked += 1
    pending.clear()


for shape, mesh in itertools.product(SHAPES, [world, grid]):
    for source, start, targets in starts(shape, mesh):
        for target in targets:
            result = start.redistribute(mesh, target)
            case = (shape, tuple(mesh.shape), str(source), str(target))
            pending.append((case, of_ranks(result._local_tensor), result.full_tensor()))
        read()  # larger programs take longer to compile than their parts
assert checked == len(wanted)
print(json.dumps({"checked": checked}))
