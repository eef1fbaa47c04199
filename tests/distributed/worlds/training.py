"""Unmodified DTensor programs in a world, compared with the training of the same model on the CPU."""

import copy
import json
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import torch_pjrt
from torch_pjrt.distributed import describe, split

STEPS, BATCH, WIDTH = 4, 8, 16


class Block(nn.Module):
    def __init__(self, width: int = WIDTH, hidden: int = 32) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width: int = WIDTH, hidden: int = 32) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, hidden) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def whole(parameter: torch.Tensor) -> torch.Tensor:
    return (parameter.full_tensor() if isinstance(parameter, DTensor) else parameter).detach().cpu()


def optimizer_of(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    # Tensors of several kinds and meshes are no list for PyTorch's foreach operators.
    kinds = {(type(p), p.device_mesh if isinstance(p, DTensor) else None) for p in model.parameters()}
    foreach = None if len(kinds) == 1 else False
    if kind == "adamw":
        return torch.optim.AdamW(model.parameters(), 1e-2, foreach=foreach)
    return torch.optim.SGD(model.parameters(), 0.05, 0.9, foreach=foreach)


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, optimizer: str, share: float = 1) -> None:
    """`share`: this rank's share of the loss, for gradients that are summed."""
    by = optimizer_of(optimizer, model)
    for _ in range(STEPS):
        loss = ((model(x) - y) ** 2).mean() * share
        loss.backward()
        by.step()
        by.zero_grad()


def compare(
    name: str,
    shard: Callable[[nn.Module], nn.Module],
    part: Callable[[torch.Tensor], torch.Tensor],
    optimizer: str = "sgd",
    tolerance: float = 1e-5,
    share: float = 1,
    **sizes: int,
) -> None:
    torch.manual_seed(3)
    alone = Net(**sizes)
    model = shard(copy.deepcopy(alone).to("pjrt"))
    width = sizes.get("width", WIDTH)
    x, y = torch.randn(BATCH, width), torch.randn(BATCH, width)
    train(alone, x, y, optimizer)
    torch_pjrt.reset_metrics()
    train(model, part(x), part(y), optimizer, share)
    for (key, right), (_, found) in zip(alone.named_parameters(), model.named_parameters(), strict=True):
        torch.testing.assert_close(whole(found), right.detach(), rtol=tolerance, atol=tolerance, msg=f"{name} {key}")
    table = describe(model).splitlines()
    assert table[0].split() == ["parameter", "shape", "placements", "bytes", "a", "device"]
    assert len(table) == 2 + len(list(model.parameters()))
    metrics = torch_pjrt.metrics()
    assert metrics["host_fallbacks"] == {}, metrics["host_fallbacks"]
    assert metrics["graphs_interpreted"] == 0
    assert sum(metrics["collectives"].values()) >= STEPS, metrics["collectives"]
    assert set(metrics["collectives"]) == set(metrics["collective_bytes"])
    done.append(name)


dist.init_process_group("pjrt", rank=0, world_size=4)
done: list[str] = []
world = init_device_mesh("pjrt", (4,), mesh_dim_names=("dp",))
grid = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("dp", "tp"))
PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}
SEQUENCE_PLAN = {
    "norm": SequenceParallel(sequence_dim=0),
    "up": ColwiseParallel(input_layouts=Shard(0)),
    "down": RowwiseParallel(output_layouts=Shard(0)),
}


def tensor_parallel(mesh: DeviceMesh, plan: dict[str, ParallelStyle] = PLAN) -> Callable[[nn.Module], nn.Module]:
    def shard(model: nn.Module) -> nn.Module:
        for block in model.blocks:
            parallelize_module(block, mesh, plan)
        return model

    return shard


def data_parallel(mesh: DeviceMesh, **how: object) -> Callable[[nn.Module], nn.Module]:
    def shard(model: nn.Module) -> nn.Module:
        for block in model.blocks:
            fully_shard(block, mesh=mesh, **how)
        return fully_shard(model, mesh=mesh, **how)

    return shard


def both(model: nn.Module) -> nn.Module:
    return data_parallel(grid["dp"])(tensor_parallel(grid["tp"])(model))


def on_device(x: torch.Tensor) -> torch.Tensor:
    return x.to("pjrt")


ALL: dict[str, Callable[[], None]] = {
    "tp": lambda: compare("tp", tensor_parallel(init_device_mesh("pjrt", (4,))), on_device),
    "tp adamw": lambda: compare("tp adamw", tensor_parallel(world), on_device, "adamw", 1e-4),
    "sp": lambda: compare("sp", tensor_parallel(world, SEQUENCE_PLAN), lambda x: split(x, world), share=1 / 4),
    "fsdp": lambda: compare("fsdp", data_parallel(world), lambda x: split(x, world)),
    "fsdp adamw": lambda: compare("fsdp adamw", data_parallel(world), lambda x: split(x, world), "adamw", 1e-4),
    "fsdp kept": lambda: compare(
        "fsdp kept", data_parallel(world, reshard_after_forward=False), lambda x: split(x, world)
    ),
    "fsdp uneven": lambda: compare("fsdp uneven", data_parallel(world), lambda x: split(x, world), width=10, hidden=7),
    "hsdp": lambda: compare("hsdp", data_parallel(grid), lambda x: split(split(x, grid["dp"]), grid["tp"])),
    "fsdp tp": lambda: compare("fsdp tp", both, lambda x: split(x, grid["dp"])),
    "ddp": lambda: compare("ddp", lambda m: nn.parallel.DistributedDataParallel(m), lambda x: split(x, world)),
}
for name in sys.argv[1:] or ALL:
    ALL[name]()
print(json.dumps(done))
