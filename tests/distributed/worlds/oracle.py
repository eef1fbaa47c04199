"""What each rank has after every redistribution, of PyTorch's own ranks in one process (LocalTensorMode) on the CPU.

Writes a dict into the file that it is given: for each case the tensors of all ranks.
"""

import itertools
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

RANKS = 4
SHAPES = [(8, 12), (10, 7)]  # the second is one that doesn't divide
found: dict[tuple[Any, ...], list[torch.Tensor]] = {}
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())  # type: ignore[no-untyped-call]
with LocalTensorMode(RANKS):  # type: ignore[no-untyped-call]
    for shape, sizes in itertools.product(SHAPES, [(4,), (2, 2)]):
        mesh = init_device_mesh("cpu", sizes)
        x = torch.arange(float(shape[0] * shape[1])).view(shape)
        every = [Replicate(), Shard(0), Shard(1), Partial()]
        others = (
            [Partial("avg"), Partial("max")] if mesh.ndim == 1 else []
        )  # equal on all ranks, they are what they were
        for source in itertools.product([*every, *others], repeat=mesh.ndim):
            share = 1
            for dim, placement in enumerate(source):
                share *= mesh.size(dim) if placement == Partial() else 1
            whole = [Replicate() if placement.is_partial() else placement for placement in source]
            local = distribute_tensor(x, mesh, whole)._local_tensor / share
            start = DTensor.from_local(local, mesh, source, run_check=False, shape=x.shape, stride=x.stride())
            for target in itertools.product(every[:3], repeat=mesh.ndim):
                result: Any = start.redistribute(mesh, target)._local_tensor
                of_ranks = result._local_tensors
                found[shape, sizes, str(source), str(target)] = [of_ranks[rank].clone() for rank in range(RANKS)]
torch.save(found, sys.argv[1])
