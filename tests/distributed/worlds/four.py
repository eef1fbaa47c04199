"""Starts a world of four ranks when it is imported, with the models and reads that its scripts share."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from torch_pjrt import _C

RANKS = 4
dist.init_process_group("pjrt", rank=0, world_size=RANKS)
world = init_device_mesh("pjrt", (RANKS,), mesh_dim_names=("dp",))
grid = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
X, Y = torch.randn(8, 16), torch.randn(8, 16)


def of_ranks(x: torch.Tensor) -> list[torch.Tensor]:
    """Returns each rank's value, on the CPU."""
    return [_C.values_of_rank(x.detach(), rank) for rank in range(RANKS)]


def network(hidden: int = 32) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, hidden), nn.ReLU(), nn.Linear(hidden, 16))


def sharded(model: Any, mesh: DeviceMesh = world, **how: Any) -> Any:
    """Shards each layer that has parameters, and the model, by FSDP2."""
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh, **how)
    return fully_shard(model, mesh=mesh, **how)
