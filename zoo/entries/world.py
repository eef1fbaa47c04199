"""A world of two devices in one process, over which FSDP2 shards the parameters."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from zoo.entries import Prepared, lazy
from zoo.model import Built
from zoo.reference import Inapplicable, infer, step_of


@functools.cache
def mesh() -> DeviceMesh:
    dist.init_process_group("pjrt", rank=0, world_size=2)
    return init_device_mesh("pjrt", (2,), mesh_dim_names=("dp",))


def prepare(made: Built, what: str) -> Prepared:
    over = mesh()
    if any(parameter.dim() == 0 for parameter in made.module.parameters()):
        raise Inapplicable("FSDP2 shards no scalar parameters")
    here = lazy.moved(made)
    for part in reversed(list(here.module.modules())):  # inner modules first, as fully_shard wants them
        if isinstance(part, (nn.ModuleList, nn.Sequential)):
            for block in part:
                if next(block.parameters(), None) is not None and not isinstance(block, nn.ModuleList):
                    fully_shard(block, mesh=over)
    fully_shard(here.module, mesh=over)
    if what == "forward":
        return Prepared(lambda: infer(here), here, lazy.wait)
    step: Any = step_of(here)
    return Prepared(lambda: step(*here.args, **here.kwargs), here, lazy.wait)
