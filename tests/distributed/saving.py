"""Checkpoints of FSDP2 × tensor parallelism whose dimensions don't divide: saved by async_save and read by another
mesh, and whole states that rank 0 broadcasts. Run in a world, or by each of four processes; compared with the CPU."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils import _pytree as pytree

import torch_pjrt  # noqa: F401

if "RANK" in os.environ:
    dist.init_process_group("pjrt", timeout=timedelta(seconds=60))
else:
    dist.init_process_group("pjrt", rank=0, world_size=4)
grid = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("dp", "tp"))
line = init_device_mesh("pjrt", (4,))
checked = 0
Training = tuple[nn.Module, torch.optim.Optimizer]


def alone(seed: int) -> Training:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 7))  # 5 rows for 2 ranks, and 7
    return model, adam(model)


def sharded(seed: int, mesh: Any) -> Training:
    model = alone(seed)[0].to("pjrt")
    if mesh is grid:
        parallelize_module(model, grid["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=grid["dp"] if mesh is grid else line)
    return model, adam(model)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 0.01, foreach=False)


def train(training: Training, steps: range, device: str) -> None:
    model, optimizer = training
    for step in steps:
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step)).to(device)  # equal on all ranks
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def state(training: Training, **options: bool) -> dict[str, Any]:
    model, optimizer = get_state_dict(*training, options=StateDictOptions(**options))
    return {"model": model, "optimizer": optimizer}


def check(training: Training, wanted: Training) -> None:
    """Compares whole states."""
    global checked
    found = [state(each, full_state_dict=True, cpu_offload=True) for each in (training, wanted)]
    if dist.get_rank() != 0:  # to which alone the states are given
        return
    for ours, right in zip(*map(pytree.tree_leaves, found), strict=True):
        if isinstance(ours, torch.Tensor):
            torch.testing.assert_close(ours, right, rtol=1e-5, atol=1e-6)
            checked += 1


wanted = alone(0)
train(wanted, range(2), "cpu")
training = sharded(0, grid)
train(training, range(2), "pjrt")
check(training, wanted)
dcp.async_save(state(training), checkpoint_id=sys.argv[1]).result()
wholes = state(training, full_state_dict=True, cpu_offload=True)
train(wanted, range(2, 4), "cpu")
for mesh in (grid, line):
    again = sharded(1, mesh)
    read = state(again)
    dcp.load(read, checkpoint_id=sys.argv[1])
    set_state_dict(*again, model_state_dict=read["model"], optim_state_dict=read["optimizer"])
    train(again, range(2, 4), "pjrt")
    check(again, wanted)
other = sharded(2, grid)
sent = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
set_model_state_dict(other[0], wholes["model"], options=sent)
set_optimizer_state_dict(*other, wholes["optimizer"], options=sent)
train(other, range(2, 4), "pjrt")
check(other, wanted)
dist.barrier()
print(checked)
