"""Run as one of two processes: trains over gloo, on the CPU and on the device. Prints a JSON of what each gave."""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import torch_pjrt


def trained(device: str, way: str, rank: int) -> list[list[float]]:
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5)).to(device)
    if way == "DDP":
        model = DistributedDataParallel(model)
    elif way == "FSDP2":
        fully_shard(model, mesh=init_device_mesh(device, (2,)))  # rows of 5 don't divide
    else:
        parallelize_module(model, init_device_mesh(device, (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(3):
        torch.manual_seed(step if way == "tensor parallel" else 10 * step + rank)
        optimizer.zero_grad()
        model(torch.randn(4, 8).to(device)).square().mean().backward()
        optimizer.step()
    whole = (p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters())
    return [p.detach().flatten().tolist() for p in whole]


def main(file: str, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    ways = ("DDP", "FSDP2", "tensor parallel")
    told = {device: [trained(device, way, rank) for way in ways] for device in ("cpu", "pjrt")}
    print(json.dumps({**told, "counted": torch_pjrt.metrics()["host_fallbacks"]}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
