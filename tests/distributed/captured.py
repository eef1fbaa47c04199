"""Run by each of several processes on tests/pjrt/ranks.c: captured steps, whose collectives are part of one program of
all processes. Prints a JSON of the checks."""

from __future__ import annotations

import copy
import json
import os
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import torch_pjrt
from torch_pjrt.distributed import split

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS = 4
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def network(hidden: int = 32) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, hidden), nn.ReLU(), nn.Linear(hidden, 16))


def stepping(model: Any, by: torch.optim.Optimizer, reduce: Callable[[], None] = lambda: None) -> Step:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        by.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        reduce()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        by.step()
        return loss

    return step


def adamw(model: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 1e-2, foreach=False)


def compare(alone: nn.Module, model: nn.Module) -> None:
    for (name, right), found in zip(alone.named_parameters(), model.parameters(), strict=True):
        whole = (found.full_tensor() if isinstance(found, DTensor) else found).detach().cpu()
        torch.testing.assert_close(whole, right.detach(), rtol=1e-4, atol=1e-4, msg=name)


def trained(wrap: Callable[[Any], Any], mesh: Any, reduces: bool = False) -> None:
    """Trains as one device does on the whole batch; a step is one program and one execution."""
    alone = network()
    model = wrap(copy.deepcopy(alone).to("pjrt"))

    def reduce() -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)

    step = torch_pjrt.compile_step(stepping(model, adamw(model), reduce if reduces else lambda: None))
    wanted = stepping(alone, adamw(alone))
    for i in range(STEPS):
        torch.manual_seed(i)
        X, Y = torch.randn(8, 16), torch.randn(8, 16)
        x, y = (split(t, mesh) if mesh is not None else t.to("pjrt") for t in (X, Y))
        torch_pjrt.sync()
        torch_pjrt.reset_metrics()
        loss = step(x, y).detach()
        reported = torch_pjrt.metrics()
        if i >= 2:
            assert (reported["executions"], reported["graphs_compiled"], reported["host_fallbacks"]) == (1, 0, {}), (
                reported
            )
            assert sum(reported["collectives"].values()) >= 1, reported
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        assert loss.item() == pytest.approx(wanted(X, Y).item(), rel=1e-4)
    assert step.programs == 1
    compare(alone, model)


def by_hand() -> None:
    trained(lambda model: model, init_device_mesh("pjrt", (SIZE,)), reduces=True)


def data_parallel() -> None:
    trained(DistributedDataParallel, init_device_mesh("pjrt", (SIZE,)))


def sharded(model: Any, mesh: Any) -> Any:
    fully_shard(model[0], mesh=mesh)
    fully_shard(model[2], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp() -> None:
    mesh = init_device_mesh("pjrt", (SIZE,))
    trained(lambda model: sharded(model, mesh), mesh)


def tensor_parallel(model: Any, mesh: Any) -> Any:
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def tensors() -> None:
    mesh = init_device_mesh("pjrt", (SIZE,))

    def wrap(model: Any) -> Any:
        for parameter in model.parameters():
            parameter.requires_grad_()
        return tensor_parallel(model, mesh)

    alone, model = network(), wrap(network().to("pjrt"))
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))

    def gradients(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss

    step = torch_pjrt.compile_step(gradients)
    loss = step(x.to("pjrt"))
    wanted = alone(x).square().mean()
    wanted.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    for found, right in zip(model.parameters(), alone.parameters(), strict=True):
        gradient = found.grad.full_tensor() if isinstance(found.grad, DTensor) else found.grad
        torch.testing.assert_close(gradient.cpu(), right.grad, rtol=1e-4, atol=1e-5)
    jitted = torch_pjrt.jit(model, (x.to("pjrt"),))
    torch.testing.assert_close(jitted(x.to("pjrt")).detach().cpu(), alone(x).detach(), rtol=1e-4, atol=1e-5)


def both() -> None:
    """Groups of two kinds, both parts of the world, in one program."""
    grid = init_device_mesh("pjrt", (2, SIZE // 2), mesh_dim_names=("dp", "tp"))
    last = grid["tp"].mesh.tolist()[-1]

    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows, columns = x.clone(), x * 2
        dist.all_reduce(rows, group=grid.get_group("dp"))
        dist.all_reduce(columns, group=grid.get_group("tp"))
        gathered = columns.new_empty(2 * columns.numel())
        dist.all_gather_into_tensor(gathered, x, group=grid.get_group("dp"))
        sent = x.clone()
        dist.broadcast(sent, src=last, group=grid.get_group("tp"))
        return rows + columns, gathered, sent

    x = torch.full((3,), RANK + 1.0, device="pjrt")
    captured = [t.cpu() for t in torch_pjrt.compile_step(step)(x)]
    lazy = [t.cpu() for t in step(x)]
    for found, wanted in zip(captured, lazy, strict=True):
        assert torch.equal(found, wanted), (found, wanted)
    row, column = divmod(RANK, SIZE // 2)
    rows = sum(1.0 + column + i * (SIZE // 2) for i in range(2))
    assert captured[0][0] == rows + 2 * sum(1.0 + row * (SIZE // 2) + i for i in range(SIZE // 2))


def apart() -> None:
    """Steps that differ between ranks are refused on all of them, before anything runs."""
    x = torch.arange(4.0 + SIZE, device="pjrt")

    def step(x: torch.Tensor) -> torch.Tensor:
        mine = x[RANK : RANK + 4].clone()
        dist.all_reduce(mine)
        return mine

    words = r"captured different steps.*Ranks 0 and 1 differ first at '.*' and '.*'\. What depends on the rank"
    with pytest.raises(torch_pjrt.CaptureError, match=words):
        torch_pjrt.compile_step(step)(x)
    assert step(x).tolist() == [SIZE * i + sum(range(SIZE)) for i in range(4)]  # lazily it is right
    alone = torch_pjrt.compile_step(lambda t: t * (RANK + 2))  # without collectives, each rank's own
    assert alone(x)[1].item() == RANK + 2
    pair = dist.new_group([0, 3]) if SIZE > 2 else None
    if pair is not None and RANK in (0, 3):
        with pytest.raises(torch_pjrt.CaptureError, match=r"ranks \[0, 3\] alone.*captured step.*new_group"):
            torch_pjrt.compile_step(lambda t: dist.all_reduce(t, group=pair))(x)
    words = "a program in a file is for one device, and this one has an all_reduce between processes.*a process group$"
    with pytest.raises(torch_pjrt.CaptureError, match=words):
        torch_pjrt.export(lambda t: dist.all_reduce(t), x)
    dist.barrier()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    dist.init_process_group("pjrt", timeout=timedelta(seconds=60))
    for case in sys.argv[1:]:
        globals()[case]()
    print(json.dumps(sys.argv[1:]))
    dist.barrier()
