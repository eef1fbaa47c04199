"""Computes each rank's values after every redistribution, by PyTorch's own ranks in one process (LocalTensorMode) on
the CPU.

Writes a dict into the given file: for each case the tensors of all ranks.
"""

import itertools
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.distributed.redistributions import SHAPES, starts

RANKS = 4
found: dict[tuple[Any, ...], list[torch.Tensor]] = {}
dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())  # type: ignore[no-untyped-call]
with LocalTensorMode(RANKS):  # type: ignore[no-untyped-call]
    for shape, sizes in itertools.product(SHAPES, [(4,), (2, 2)]):
        mesh = init_device_mesh("cpu", sizes)
        for source, start, targets in starts(shape, mesh):
            for target in targets:
                result: Any = start.redistribute(mesh, target)._local_tensor
                of_ranks = result._local_tensors
                found[shape, sizes, str(source), str(target)] = [of_ranks[rank].clone() for rank in range(RANKS)]
torch.save(found, sys.argv[1])
