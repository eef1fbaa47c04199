"""Every redistribution of a DTensor in a world, compared with LocalTensorMode on the CPU (oracle.py): each rank's
values, except for padding (Note [Ragged])."""

import itertools
import json
import sys
from typing import Any

import torch
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import torch_pjrt
from tests.distributed.redistributions import SHAPES, numbered, starts
from tests.distributed.worlds.four import grid, of_ranks, world

wanted: dict[tuple[Any, ...], list[torch.Tensor]] = torch.load(sys.argv[1])
pending: list[tuple[Any, torch.Tensor]] = []
wholes: dict[Any, torch.Tensor] = {}  # one for equal shards, because most of the time is spent on compiles
checked = 0


def read() -> None:
    global checked
    torch_pjrt.sync([*(local for _, local in pending), *(whole for whole in wholes.values())])
    for case, local in pending:
        for rank, (values, right) in enumerate(zip(of_ranks(local), wanted[case], strict=True)):
            found = values[tuple(map(slice, right.shape))]
            assert torch.equal(found, right), (case, rank, found, right)
        checked += 1
    pending.clear()


for shape, mesh in itertools.product(SHAPES, [world, grid]):
    for source, start, targets in starts(shape, mesh):
        for target in targets:
            result = start.redistribute(mesh, target)
            case = (shape, tuple(mesh.shape), str(source), str(target))
            pending.append((case, result._local_tensor))
            if (place := (shape, tuple(mesh.shape), str(target))) not in wholes:
                wholes[place] = result.full_tensor()
        read()  # larger programs take longer to compile than their parts
for place, whole in wholes.items():
    assert torch.equal(whole.cpu(), numbered(place[0])), place
weights = numbered((16, 3)).to("pjrt")
for mesh, placements in ((world, [Shard(1)]), (grid, [Shard(1), Shard(0)])):  # dimensions that become one
    x = distribute_tensor(numbered((4, 12)).view(4, 4, 3), mesh, placements).requires_grad_()
    y = x.flatten(0, 1)
    assert any(isinstance(placement, _StridedShard) for placement in y.placements)
    assert torch.equal(y.full_tensor().detach().cpu(), numbered((16, 3)))
    (y.full_tensor() * weights).sum().backward()
    assert torch.equal(x.grad.full_tensor().flatten(0, 1).cpu(), weights.cpu())
assert checked == len(wanted)
print(json.dumps({"checked": checked}))
