"""Run by each of several processes: trains by each way of torch.distributed, and compares with whole batches on the
CPU. Prints a JSON of the syncs and collectives of the last step of each way."""

from __future__ import annotations

import copy
import json
import os
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import torch_pjrt

STEPS, BATCH = 3, 8
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("pjrt", RANK)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.down(torch.relu(self.up(self.norm(x))))
        return result


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 5)  # rows that don't divide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.head(x)
        return result


Wrap = Callable[[nn.Module], nn.Module | None]
Optimizer = Callable[[Any], torch.optim.Optimizer]


def adam(parameters: Any, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, **options)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def of_each(parameters: Any) -> torch.optim.Optimizer:
    """Returns an optimizer for DTensors of several meshes, or mixed with other parameters, without foreach."""
    return adam(parameters, foreach=False)


def data(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(step)
    return torch.randn(BATCH, 16, generator=drawn), torch.randn(BATCH, 5, generator=drawn)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, device: torch.device, part: int, parts: int
) -> None:
    clips = optimizer.defaults.get("foreach") is not False
    for step in steps:
        x, y = (t.chunk(parts)[part].to(device) for t in data(step))
        torch_pjrt.reset_metrics()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        if isinstance(model, FullyShardedDataParallel):
            model.clip_grad_norm_(1.0)
        elif clips:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def network() -> nn.Module:
    torch.manual_seed(0)
    return Network()


def alone(make: Optimizer, steps: int = STEPS) -> list[torch.Tensor]:
    model = network()
    train(model, make(model.parameters()), range(steps), torch.device("cpu"), 0, 1)
    return [p.detach() for p in model.parameters()]


def sharded(model: nn.Module, mesh: DeviceMesh, **options: Any) -> None:
    for block in model.blocks:  # type: ignore[union-attr]
        fully_shard(block, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)


def tensor_parallel(model: nn.Module, mesh: DeviceMesh) -> None:
    for block in model.blocks:  # type: ignore[union-attr]
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def checkpointed(model: nn.Module, mesh: DeviceMesh) -> None:
    model.blocks = nn.ModuleList([checkpoint_wrapper(block) for block in model.blocks])  # type: ignore[union-attr]
    sharded(model, mesh)


def check(model: nn.Module, wanted: list[torch.Tensor], bound: float) -> None:
    for found, expected in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(whole(found), expected, rtol=0, atol=bound)


def tried(wrap: Wrap, make: Optimizer = adam, parts: int = SIZE, bound: float = 1e-5) -> dict[str, Any]:
    """``parts``: the number of parts of a batch; as many consecutive ranks take the same part."""
    wanted = alone(make)
    model = network().to(DEVICE)
    wrapped = wrap(model)
    model = model if wrapped is None else wrapped
    train(model, make(model.parameters()), range(STEPS), DEVICE, RANK * parts // SIZE, parts)
    metrics = torch_pjrt.metrics()
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            check(model, wanted, bound)
    else:
        check(model, wanted, bound)
    return {"syncs": metrics["syncs"], **metrics["host_fallbacks"]}


def compiled(wrap: Wrap) -> Wrap:
    def run(model: nn.Module) -> Any:
        wrapped = wrap(model)
        return torch.compile(model if wrapped is None else wrapped, backend="pjrt")

    return run


def ways() -> dict[str, Callable[[], dict[str, Any]]]:
    line = init_device_mesh("pjrt", (SIZE,))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    ddp = DistributedDataParallel
    found = {
        "DDP": lambda: tried(lambda m: ddp(m, device_ids=[RANK])),
        "DDP in buckets": lambda: tried(
            lambda m: ddp(m, bucket_cap_mb=0.001, gradient_as_bucket_view=True, find_unused_parameters=True)
        ),
        "ZeRO": lambda: tried(ddp, lambda p: ZeroRedundancyOptimizer(p, torch.optim.AdamW, lr=0.01)),
        "replicate": lambda: tried(lambda m: replicate(m, device_mesh=line) and None),
        "FSDP2": lambda: tried(lambda m: sharded(m, line)),
        "FSDP2 fused": lambda: tried(lambda m: sharded(m, line), lambda p: adam(p, fused=True)),
        "FSDP2 SGD": lambda: tried(lambda m: sharded(m, line, reshard_after_forward=False), sgd),
        "FSDP2 bfloat16": lambda: tried(lambda m: sharded(m, line, mp_policy=half), bound=0.06),
        "FSDP2 recomputed": lambda: tried(lambda m: checkpointed(m, line)),
        "FSDP2 offloaded": lambda: tried(lambda m: sharded(m, line, offload_policy=CPUOffloadPolicy())),
        "FSDP": lambda: tried(lambda m: FullyShardedDataParallel(m, device_id=DEVICE, use_orig_params=True), sgd),
        "tensor parallel": lambda: tried(lambda m: tensor_parallel(m, line), of_each, parts=1),
    }
    if SIZE == 2:
        found["DDP compiled"] = lambda: tried(compiled(ddp))
        found["FSDP2 compiled"] = lambda: tried(compiled(lambda m: sharded(m, line)))
        found["tensor parallel compiled"] = lambda: tried(
            compiled(lambda m: tensor_parallel(m, line)), of_each, parts=1
        )
    if SIZE == 4:
        square = init_device_mesh("pjrt", (2, 2), mesh_dim_names=("dp", "tp"))

        def both(model: nn.Module) -> None:
            tensor_parallel(model, square["tp"])
            sharded(model, square["dp"])

        found["HSDP"] = lambda: tried(lambda m: sharded(m, square))
        found["FSDP2 and tensor parallel"] = lambda: tried(both, of_each, parts=2)
    return found


class Synchronized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)
        self.norm, self.plain = nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False, track_running_stats=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.plain(self.norm(self.convolution(x)).relu()).square().mean((2, 3)))
        return result


def synchronized(dtype: torch.dtype, bound: float) -> None:
    """SyncBatchNorm over parts of 3 and 1 of each 4 is BatchNorm over the whole."""

    def trained(device: torch.device, of_ranks: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model: nn.Module = Synchronized()
        if of_ranks:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model).to(device)
            model = DistributedDataParallel(model, device_ids=[RANK])
        optimizer = sgd(model.parameters())
        for step in range(STEPS):
            x = torch.randn(2 * SIZE, 3, 6, 5, generator=torch.Generator().manual_seed(step))
            whole_batch = len(x)
            if of_ranks:
                x = x.split([3, 1] * (SIZE // 2))[RANK]
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
                loss = model(x.to(device)).square().sum() * (SIZE if of_ranks else 1) / whole_batch
            loss.backward()
            optimizer.step()
        return [t.detach().cpu() for t in (*model.parameters(), *model.buffers())]

    for found, wanted in zip(trained(DEVICE, True), trained(torch.device("cpu"), False), strict=True):
        torch.testing.assert_close(found, wanted, rtol=bound, atol=bound)


def pipelined(kind: type[Schedule1F1B] | type[ScheduleInterleaved1F1B], each: int) -> None:
    """Each rank has `each` stages, and batches are split: losses and gradients are those of the whole."""
    count = SIZE * each
    layers = [nn.Linear(4, 4, dtype=torch.float64) for _ in range(count)]
    x, y = torch.randn(2, 8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for layer in layers:
        for p in layer.parameters():
            dist.broadcast(p.data, src=0)
    own = range(RANK, count, SIZE)
    stages = [PipelineStage(copy.deepcopy(layers[i]).to(DEVICE), i, count, DEVICE) for i in own]
    schedule = kind(stages if each > 1 else stages[0], 4, loss_fn=nn.functional.mse_loss)  # type: ignore[arg-type]
    first, last = RANK == 0, RANK == SIZE - 1
    losses: list[torch.Tensor] = []
    schedule.step(*[x.to(DEVICE)] * first, target=y.to(DEVICE) if last else None, losses=losses if last else None)
    loss = nn.functional.mse_loss(nn.Sequential(*layers)(x), y)
    loss.backward()
    if last:
        torch.testing.assert_close(torch.stack(losses).mean(), loss, check_device=False)
    for stage, i in zip(stages, own, strict=True):
        for found, wanted in zip(stage.submod.parameters(), layers[i].parameters(), strict=True):
            torch.testing.assert_close(found.grad, wanted.grad, check_device=False)


def resumed(folder: str) -> None:
    """A checkpoint of one mesh is loaded by another, including the optimizer, and by one device."""
    wanted = alone(adam, STEPS + 2)
    line = init_device_mesh("pjrt", (SIZE,))
    rows = init_device_mesh("pjrt", (SIZE // 2, 2), mesh_dim_names=("copies", "parts"))

    def made(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = network().to(DEVICE)
        sharded(model, mesh)
        return model, adam(model.parameters())

    model, optimizer = made(line)
    train(model, optimizer, range(STEPS), DEVICE, RANK, SIZE)
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    checkpoint.save(state, checkpoint_id=folder)
    written = {name: whole(tensor) for name, tensor in model.state_dict().items()}

    model, optimizer = made(rows)
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(model, optimizer, range(STEPS, STEPS + 2), DEVICE, RANK, SIZE)
    check(model, wanted, 1e-5)

    single = Network().to(DEVICE)
    read = {"model": single.state_dict()}
    checkpoint.load(read, checkpoint_id=folder, no_dist=True)
    for name, tensor in single.state_dict().items():
        assert torch.equal(tensor.cpu(), written[name])


def main(folder: str, only: list[str]) -> None:
    dist.init_process_group(device_id=DEVICE, timeout=timedelta(seconds=60))
    torch.pjrt.set_device(DEVICE)
    reported = {name: run() for name, run in ways().items() if not only or name in only}
    if not only:
        beyond(folder)
    print(json.dumps(reported))
    dist.barrier()
    dist.destroy_process_group()


def beyond(folder: str) -> None:
    synchronized(torch.float32, 1e-5)
    synchronized(torch.bfloat16, 0.05)
    pipelined(Schedule1F1B, 1)
    if SIZE == 2:
        pipelined(ScheduleInterleaved1F1B, 2)
    resumed(folder)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2:])
