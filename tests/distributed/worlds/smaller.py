"""A checkpoint of a world is loaded by one of another size: model and optimizer, with rows that divide in neither."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from torch_pjrt.distributed import split

ranks, first, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
STEPS = 2
dist.init_process_group("pjrt", rank=0, world_size=ranks)
mesh = init_device_mesh("pjrt", (ranks,))


def train(model: nn.Module, by: torch.optim.Optimizer, steps: range, is_sharded: bool) -> None:
    for step in steps:
        x = torch.randn(12, 5, generator=torch.Generator().manual_seed(step))
        by.zero_grad()
        model(split(x, mesh) if is_sharded else x).square().mean().backward()
        by.step()


def made(is_sharded: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    if is_sharded:
        fully_shard(model.to("pjrt"), mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


model, by = made(True)
if first:
    state = dict(zip(("model", "optimizer"), get_state_dict(model, by), strict=True))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, by, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
train(model, by, range(first, first + STEPS), True)
alone, alone_by = made(False)
train(alone, alone_by, range(first + STEPS), False)
for found, wanted in zip(model.parameters(), alone.parameters(), strict=True):
    assert isinstance(found, DTensor)
    torch.testing.assert_close(found.full_tensor().detach().cpu(), wanted.detach(), rtol=1e-5, atol=1e-5)
state = dict(zip(("model", "optimizer"), get_state_dict(model, by), strict=True))
dcp.save(state, checkpoint_id=folder)
print(ranks)
