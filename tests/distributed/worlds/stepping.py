"""compile_step of steps of fully_shard, replicate and DistributedDataParallel: one execution, with the gradients and
losses of one device that takes the whole batch."""

import contextlib
import copy
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import torch_pjrt
from tests.distributed.worlds.four import X, Y, grid, network, of_ranks, sharded, world
from torch_pjrt.distributed import split

STEPS = 4
Shard = Callable[[Any], Any]
Make = Callable[[Any], torch.optim.Optimizer]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, foreach=False)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 1e-2, foreach=False)


def of_shards(mesh: Any, **how: Any) -> Shard:
    return lambda model: sharded(model, mesh, **how)


def with_tensors(model: Any) -> Any:
    parallelize_module(model, grid["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return of_shards(grid["dp"])(model)


def recomputed(model: Any) -> Any:
    return of_shards(world)(nn.Sequential(*map(checkpoint_wrapper, model)))


def loss_of(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((model(x) - y) ** 2).mean()


def plain(model: Any, by: torch.optim.Optimizer) -> Callable[..., torch.Tensor]:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        by.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        by.step()
        return loss

    return step


def clipped(model: Any, by: torch.optim.Optimizer) -> Callable[..., torch.Tensor]:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        by.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        by.step()
        return loss

    return step


def in_two(model: Any, by: torch.optim.Optimizer) -> Callable[..., torch.Tensor]:
    """Two micro-batches; only the second one's backward reduces."""

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        by.zero_grad()
        losses = []
        for last in (False, True):
            if hasattr(model, "set_requires_gradient_sync"):
                model.set_requires_gradient_sync(last)
            if isinstance(model, DistributedDataParallel):
                model.require_backward_grad_sync = last
            loss = loss_of(model, x + last, y) / 2
            loss.backward()
            losses.append(loss)
        by.step()
        return losses[0] + losses[1]

    return step


def at_once(model: Any, by: torch.optim.Optimizer) -> Callable[..., torch.Tensor]:
    """Two forwards and one backward: the first forward enables the reduction, and the second, in no_sync(), keeps
    it."""

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        by.zero_grad()
        loss = loss_of(model, x, y)
        with model.no_sync() if isinstance(model, DistributedDataParallel) else contextlib.nullcontext():
            loss = (loss + loss_of(model, x + 1, y)) / 2
        loss.backward()
        by.step()
        return loss

    return step


@dataclass
class Case:
    shard: Shard
    make: Make = sgd
    step: Callable[..., Any] = plain
    mesh: Any = world
    hidden: int = 32
    tolerance: float = 1e-5


HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
CASES = {
    "fsdp": Case(of_shards(world)),
    "fsdp adamw": Case(of_shards(world), adamw, clipped, tolerance=1e-4),
    "fsdp uneven kept": Case(of_shards(world, reshard_after_forward=False), adamw, clipped, hidden=7, tolerance=1e-4),
    "fsdp bfloat16": Case(of_shards(world, mp_policy=HALF), tolerance=0.02),
    "fsdp recomputed": Case(recomputed),
    "fsdp in two": Case(of_shards(world), step=in_two),
    "fsdp regathered": Case(of_shards(world, reshard_after_forward=2)),
    "hsdp": Case(of_shards(grid)),
    "fsdp tp": Case(with_tensors, mesh=grid["dp"]),
    "replicate": Case(lambda model: replicate(model, mesh=world)),
    "ddp": Case(DistributedDataParallel, adamw, clipped, tolerance=1e-4),
    "ddp in two": Case(lambda model: DistributedDataParallel(model, find_unused_parameters=True), step=in_two),
    "ddp at once": Case(DistributedDataParallel, step=at_once),
}


def parts_of(case: Case, batch: torch.Tensor) -> torch.Tensor:
    if case.mesh is world or case.mesh.ndim == 1:
        return split(batch, case.mesh)
    return split(split(batch, grid["dp"]), grid["tp"])


def compare(alone: nn.Module, model: nn.Module, tolerance: float) -> None:
    for (name, right), found in zip(alone.named_parameters(), model.parameters(), strict=True):
        whole = (found.full_tensor() if isinstance(found, DTensor) else found).detach().cpu()
        torch.testing.assert_close(whole, right.detach(), rtol=tolerance, atol=tolerance, msg=name)


def trained(name: str) -> None:
    case = CASES[name]
    alone = network(case.hidden)
    model = case.shard(copy.deepcopy(alone).to("pjrt"))
    wanted = case.step(alone, case.make(alone.parameters()))
    step = torch_pjrt.compile_step(case.step(model, case.make(model.parameters())))
    losses = []
    for i in range(STEPS):
        x, y = parts_of(case, X), parts_of(case, Y)
        torch_pjrt.sync()
        if i == 2:
            torch_pjrt.reset_metrics()
        losses.append((step(x, y).detach(), wanted(X, Y).item()))
        if i == 2:
            reported = torch_pjrt.metrics()
            assert (reported["executions"], reported["graphs_compiled"], reported["host_fallbacks"]) == (1, 0, {}), (
                name,
                reported,
            )
            assert sum(reported["collectives"].values()) >= 1, (name, reported)
    for loss, right in losses:
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        assert loss.item() == pytest.approx(right, rel=max(case.tolerance, 1e-5)), name
    compare(alone, model, case.tolerance)


def between() -> None:
    """State that calls leave to each other: gathered parameters, gradients, switches."""
    alone, model = network(), of_shards(world)(network().to("pjrt"))
    x, y = split(X, world), split(Y, world)
    by, wanted = sgd(model.parameters()), plain(alone, sgd(alone.parameters()))
    step = torch_pjrt.compile_step(plain(model, by))
    predict = torch_pjrt.jit(model, (x,))
    for _ in range(2):
        with torch.no_grad():
            seen, jitted = model(x), predict(x)  # the first leaves the outermost module's parameters gathered
        torch.testing.assert_close(of_ranks(jitted), of_ranks(seen))
        step(x, y)
        wanted(X, Y)
        assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    assert step.programs == 1
    plain(model, by)(x, y)  # and it trains as it is
    wanted(X, Y)
    compare(alone, model, 1e-5)

    def gradients(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model, x, y)
        loss.backward()
        return loss

    add_up = torch_pjrt.compile_step(gradients)
    by.zero_grad()
    for _ in range(3):
        add_up(x, y)
    assert add_up.programs == 2  # without gradients before, and with
    by.step()
    alone.zero_grad()
    (loss_of(alone, X, Y) * 3).backward()
    sgd(alone.parameters()).step()
    compare(alone, model, 1e-5)


def refused() -> None:
    x, y = split(X, world), split(Y, world)
    model = of_shards(world)(network().to("pjrt"))
    step = torch_pjrt.compile_step(plain(model, sgd(model.parameters())))
    step(x, y)
    before = [parameter.full_tensor().detach().cpu() for parameter in model.parameters()]
    model.set_requires_gradient_sync(False)
    with pytest.raises(torch_pjrt.CaptureError, match=r"fully_shard has not reduced after it.*micro-batches"):
        step(x, y)
    loss_of(model, x, y).backward()
    model.set_requires_gradient_sync(True)
    with pytest.raises(torch_pjrt.CaptureError, match=r"fully_shard has not reduced before it.*micro-batches"):
        torch_pjrt.compile_step(plain(model, sgd(model.parameters())))(x, y)
    loss_of(model, x, y).backward()
    sgd(model.parameters()).zero_grad()
    for parameter, right in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter.full_tensor().detach().cpu(), right)
    step(x, y)
    assert step.programs == 1
    parts = network().to("pjrt")
    fully_shard([parts[0], parts[2]], mesh=world)
    first = parts[0]
    with pytest.raises(torch_pjrt.CaptureError, match=r"fully_shard gathers '.*' with.*modules=\[model\]"):
        torch_pjrt.jit(lambda t: first(t), (x,))
    summed = DistributedDataParallel(network().to("pjrt"))
    summed.register_comm_hook(None, lambda _, bucket: bucket.buffer())
    with pytest.raises(torch_pjrt.CaptureError, match="register_comm_hook: leave that out"):
        torch_pjrt.compile_step(plain(summed, sgd(summed.parameters())))(x, y)
    later = DistributedDataParallel(network().to("pjrt"))
    known = torch_pjrt.compile_step(plain(later, sgd(later.parameters())))
    known(x, y)
    later.register_comm_hook(None, lambda _, bucket: bucket.buffer())
    with pytest.raises(torch_pjrt.CaptureError, match="register_comm_hook: leave that out"):
        known(x, y)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.norm(x))
        return result


def buffers() -> None:
    """Each forward broadcasts the first rank's buffers, except the one after a forward in no_sync()."""
    torch.manual_seed(2)
    alone, runs = Normed().to("pjrt"), []
    for compiled in (False, True):
        model = DistributedDataParallel(copy.deepcopy(alone))
        step: Any = plain(model, sgd(model.parameters()))
        step = torch_pjrt.compile_step(step) if compiled else step
        x, y = split(X, world), split(Y, world)
        for quiet in (False, True, True, False, False):
            if quiet:
                with model.no_sync():
                    step(x, y)
            else:
                step(x, y)
        if compiled:
            assert step.programs == 4  # in no_sync() or not, after such a step or not
        runs.append([of_ranks(tensor) for tensor in model.state_dict().values()])
    for lazy, captured in zip(*runs, strict=True):
        torch.testing.assert_close(captured, lazy)
    assert not torch.equal(runs[0][2][0], runs[0][2][1])  # running means of the ranks' own batches


OTHERS = {"between": between, "refused": refused, "buffers": buffers}
for name in sys.argv[1:]:
    OTHERS[name]() if name in OTHERS else trained(name)
print(json.dumps(sys.argv[1:]))
