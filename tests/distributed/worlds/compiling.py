"""torch.compile, compile_step and jit in a world: a graph, and a whole step, are one program of all devices."""

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy, dropout

import torch_pjrt
from tests.distributed.worlds.four import RANKS, X, Y, grid, network, of_ranks, world
from torch_pjrt.distributed import split

STEPS = 3
T = torch.randint(24, (4, 6))
PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def compiled(function: Any, **how: Any) -> Any:
    return torch.compile(function, backend="pjrt", fullgraph=True, **how)


def compare(alone: nn.Module, model: nn.Module, tolerance: float = 1e-5) -> None:
    for (name, right), found in zip(alone.named_parameters(), model.parameters(), strict=True):
        whole = (found.full_tensor() if isinstance(found, DTensor) else found).detach().cpu()
        torch.testing.assert_close(whole, right.detach(), rtol=tolerance, atol=tolerance, msg=name)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, foreach=False)


def stepped(model: Any, x: torch.Tensor, y: torch.Tensor, by: torch.optim.Optimizer) -> Callable[[], torch.Tensor]:
    def step() -> torch.Tensor:
        by.zero_grad()
        loss: torch.Tensor = ((model(x) - y) ** 2).mean()
        loss.backward()
        by.step()
        return loss

    return step


def functions() -> None:
    x, same = split(torch.arange(8.0), world), torch.ones(2, device="pjrt")
    double = compiled(lambda t: t * 2 + 1)
    assert [t.tolist() for t in of_ranks(double(x))] == [[4 * r + 1, 4 * r + 3] for r in range(RANKS)]
    assert double(same).sum().item() == 6  # each call's results are known to be equal or not
    with pytest.raises(RuntimeError, match=r"item\(\): the 4 ranks.*values of their own"):
        double(x).sum().item()
    assert double(same).sum().item() == 6
    total = compiled(lambda t: funcol.all_reduce(t * 2, "sum", world.get_group()).sum())
    torch_pjrt.reset_metrics()
    assert total(x).item() == 56
    assert torch_pjrt.metrics()["collectives"] == {"all_reduce": 1}
    half = compiled(lambda t: funcol.all_reduce(t, "sum", grid.get_group("tp")).sum())
    with pytest.raises(RuntimeError, match=r"item\(\): the 4 ranks"):
        half(x).item()
    assert torch_pjrt.jit(lambda t: t * 2, (same,))(same).tolist() == [2, 2]

    def written(t: torch.Tensor) -> torch.Tensor:
        t[:2].mul_(2)
        return t.view(2, 2).t()

    z, parts = split(torch.arange(16.0), world), [part.clone() for part in torch.arange(16.0).chunk(RANKS)]
    for found, part in zip(of_ranks(compiled(written)(z)), parts, strict=True):
        assert torch.equal(found, written(part))
    for found, part in zip(of_ranks(z), parts, strict=True):
        assert torch.equal(found, part)
    scaled = compiled(lambda t, factor: t * factor)
    assert [t.tolist() for t in of_ranks(scaled(x, torch.tensor(3.0)))] == [[6 * r, 6 * r + 3] for r in range(RANKS)]
    to_cpu = compiled(lambda t: t.cpu())
    assert to_cpu(same).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match=r"gives the CPU result 0, of which the 4 ranks.*full_tensor\(\)"):
        to_cpu(x)
    replica = distribute_tensor(split(torch.ones(8), world), world, [Replicate()], src_data_rank=None)
    second = compiled(lambda t: (t * 2, t.full_tensor().cpu()))
    with pytest.raises(RuntimeError, match=r"gives the CPU result 1, of which the 4 ranks.*promised.*outside"):
        second(replica)
    dropped = compiled(lambda t: dropout(t, 0.5))
    ones = torch.ones(64, device="pjrt")
    assert dropped(ones).tolist() != dropped(ones).tolist()
    grown = torch.compile(lambda t: t * 2 + t.shape[0], backend="pjrt", dynamic=True)
    for size in (4, 8, 12):
        assert grown(torch.ones(size, device="pjrt")).tolist() == [2.0 + size] * size


def placements() -> None:
    z = torch.randn(8, 12)
    for mesh, source, target in (
        (world, [Shard(0)], [Shard(1)]),
        (world, [Replicate()], [Shard(0)]),
        (world, [Shard(1)], [Replicate()]),
        (grid, [Shard(0), Shard(1)], [Shard(1), Replicate()]),
        (grid, [Replicate(), Shard(0)], [Shard(1), Shard(1)]),
    ):
        move = compiled(lambda t, mesh=mesh, target=target: (t * 2).redistribute(mesh, target) + 1)
        result = move(distribute_tensor(z, mesh, source))
        assert list(result.placements) == target
        torch.testing.assert_close(result.full_tensor().cpu(), z * 2 + 1)
    best = compiled(lambda t: t.argmax(0).full_tensor())
    torch.testing.assert_close(best(distribute_tensor(z, world, [Shard(0)])).cpu(), z.argmax(0))
    whole = compiled(lambda t: (t * t).full_tensor())
    wide = distribute_tensor(torch.arange(8.0), grid, [Replicate(), Shard(0)]).requires_grad_()
    assert whole(wide).sum().item() == 140
    whole(wide).sum().backward()
    assert wide.grad is not None
    assert wide.grad.full_tensor().tolist() == [2.0 * i for i in range(8)]
    mine = split(torch.arange(8.0), grid["dp"])
    with pytest.raises(RuntimeError, match=r"item\(\): the 4 ranks"):  # replicas that differ
        whole(DTensor.from_local(mine, grid, [Replicate(), Shard(0)], run_check=False)).sum().item()
    dropped = compiled(lambda t: dropout(t, 0.5))(distribute_tensor(torch.ones(16, 16), world, [Shard(0)]))
    masks = of_ranks(dropped.to_local())
    assert not any(torch.equal(masks[a], masks[b]) for a in range(RANKS) for b in range(a))
    mean = compiled(lambda t: (t * t).mean().full_tensor())
    assert mean(distribute_tensor(z, world, [Shard(0)])).item() == pytest.approx((z * z).mean().item(), rel=1e-5)


def training() -> None:
    alone, model = network(), parallelize_module(network().to("pjrt"), world, PLAN)
    by = sgd(model.parameters())
    step = stepped(compiled(model), X.to("pjrt"), Y.to("pjrt"), by)
    wanted = stepped(alone, X, Y, sgd(alone.parameters()))
    losses = [(step().detach(), wanted().detach()) for _ in range(STEPS)]
    for found, right in losses:
        assert found.item() == pytest.approx(right.item(), rel=1e-5)
    compare(alone, model)
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    step()
    torch_pjrt.sync()
    reported = torch_pjrt.metrics()
    assert reported["executions"] <= 4, reported  # forward, the loss, backward, and the optimizer's
    assert reported["graphs_compiled"] == 0
    assert reported["host_fallbacks"] == {}

    # Otherwise Sequential.forward would be compiled for dynamic sizes, where PyTorch's tracing of DTensor recurses.
    torch.compiler.reset()
    words = nn.Sequential(nn.Embedding(24, 16), nn.Linear(16, 24, bias=False))
    of_words = {"0": RowwiseParallel(input_layouts=Replicate()), "1": ColwiseParallel(output_layouts=Replicate())}
    shared = nn.Sequential(nn.Embedding(24, 16), nn.Linear(16, 24, bias=False))
    shared.load_state_dict(words.state_dict())
    sharded = parallelize_module(shared.to("pjrt"), world, of_words)
    for one, call, tokens in ((words, words, T), (sharded, compiled(sharded), T.to("pjrt"))):
        by = sgd(one.parameters())
        for _ in range(STEPS):
            by.zero_grad()
            cross_entropy(call(tokens).flatten(0, 1), tokens.flatten()).backward()
            by.step()
    compare(words, sharded)


def sharding() -> None:
    """Modules whose hooks Dynamo leaves out: its graphs are between them."""

    def data_parallel(model: nn.Sequential, mesh: Any) -> nn.Module:
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def both(model: nn.Sequential) -> nn.Module:
        return data_parallel(parallelize_module(model, grid["tp"], PLAN), grid["dp"])

    ways: list[tuple[Callable[[Any], nn.Module], Callable[[torch.Tensor], torch.Tensor]]] = [
        (lambda model: data_parallel(model, world), lambda x: split(x, world)),
        (both, lambda x: split(x, grid["dp"])),
        (nn.parallel.DistributedDataParallel, lambda x: split(x, world)),
    ]
    for shard, part in ways:
        alone, model = network(), shard(network().to("pjrt"))
        wanted = stepped(alone, X, Y, sgd(alone.parameters()))
        step = stepped(torch.compile(model, backend="pjrt"), part(X), part(Y), sgd(model.parameters()))
        for _ in range(STEPS):
            wanted()
            step()
        compare(alone, model)


def steps() -> None:
    for make, kind in ((sgd, "SGD"), (lambda p: torch.optim.AdamW(p, 1e-2, foreach=False), "AdamW")):
        alone, model = network(), parallelize_module(network().to("pjrt"), world, PLAN)
        wanted = stepped(alone, X, Y, make(alone.parameters()))
        step = torch_pjrt.compile_step(stepped(model, X.to("pjrt"), Y.to("pjrt"), make(model.parameters())))
        losses = []
        for i in range(5):
            if i == 2:
                torch_pjrt.sync()
                torch_pjrt.reset_metrics()
            losses.append((step().detach(), wanted().detach()))
        reported = torch_pjrt.metrics()
        assert (reported["executions"], reported["graphs_compiled"]) == (3, 0), (kind, reported)
        assert sum(reported["collectives"].values()) >= 3
        for found, right in losses:
            assert found.item() == pytest.approx(right.item(), rel=1e-4)
        compare(alone, model, 1e-4)


def branches() -> None:
    """A branch on a value is refused if ranks may take different ways, and not all would reach a collective."""
    group = world.get_group()
    x, same = split(torch.arange(8.0), world), torch.arange(8.0, device="pjrt")

    def reduced(a: torch.Tensor) -> torch.Tensor:
        gathered: torch.Tensor = torch.cond(
            a.sum() > 5, lambda b: funcol.all_reduce(b * 2, "sum", group), lambda b: b - 1, (a,)
        )
        return gathered

    def scattered(a: torch.Tensor, yes: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.cond(
            yes, lambda b: funcol.reduce_scatter_tensor(b, "sum", 0, group), lambda b: b[:2] * 1, (a,)
        )
        return found

    assert len(of_ranks(torch.compile(reduced, backend="pjrt")(x))) == RANKS  # it ends
    parts = torch.compile(scattered, backend="pjrt")(same, torch.tensor(True, device="pjrt"))
    assert [part.flatten().tolist() for part in of_ranks(parts)] == [[0, 4], [8, 12], [16, 20], [24, 28]]
    with pytest.raises(RuntimeError, match=r"item\(\)"):
        parts.sum().item()


def threads() -> None:
    """All devices receive the launches of several threads in one order."""

    def make(i: int) -> tuple[Any, torch.Tensor]:
        x = torch.full((8,), float(i), device="pjrt")
        return torch_pjrt.jit(lambda a: a * 2 + i, (x,)), x

    def call(function: Any, x: torch.Tensor, i: int) -> None:
        for _ in range(500):
            results[i] = function(x)

    results: dict[int, torch.Tensor] = {}
    workers = [threading.Thread(target=call, args=(*make(i), i)) for i in range(4)]
    for worker in workers:
        worker.start()
    lazy = torch.zeros(8, device="pjrt")
    for _ in range(50):
        lazy = lazy + 1
        torch_pjrt.sync(lazy)
    for worker in workers:
        worker.join()
    assert [results[i][0].item() for i in range(4)] == [3 * i for i in range(4)]
    assert lazy[0].item() == 50


def ranks() -> None:
    """A rank, wherever it comes from, in a graph of its own or between graphs."""
    x, group = torch.arange(8.0, device="pjrt"), world.get_group()
    of_rank: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda t: t * (world.get_local_rank() + 1) + world.get_rank(),
        lambda t: t * (group.rank() + 1) - dist.get_rank(group),
        lambda t: t.narrow(0, 2 * dist.get_rank(), 2) * 2,
        lambda t: (t + 0).add_(1).narrow(0, 2 * dist.get_rank(), 2).clone().mul_(2),
        lambda t: t + world.get_local_rank("dp") if dist.get_rank() == 0 else t,
    ]
    for function in of_rank:
        wanted = [t.tolist() for t in of_ranks(function(x))]
        assert len({tuple(t) for t in wanted}) == RANKS
        assert [t.tolist() for t in of_ranks(compiled(function)(x))] == wanted

    def written(t: torch.Tensor) -> torch.Tensor:
        t.view(2, 4).narrow(1, dist.get_rank(), 1).view(-1)[1:].zero_()
        return t

    def stale(t: torch.Tensor) -> torch.Tensor:
        part = t.narrow(0, dist.get_rank(), 1)
        t.add_(1)
        return part + 1

    def of_a_part(t: torch.Tensor) -> torch.Tensor:
        return t.view(-1).mul_(2)

    for function in (written, stale, lambda t: t.narrow(0, dist.get_rank(), 1).view(1, 1)):
        with pytest.raises(Exception, match=r"start differs by rank.*index_copy_"):
            compiled(function)(x)
    assert compiled(of_a_part)(x.clone()).tolist() == (2 * x).tolist()
    with pytest.raises(NotImplementedError, match=r"start differs by rank.*index_copy_"):
        compiled(of_a_part)(x.narrow(0, dist.get_rank(), 8 - RANKS))

    def parted(t: torch.Tensor) -> torch.Tensor:
        rank = group.rank()
        torch._dynamo.graph_break()
        return t * rank

    assert [t[1].item() for t in of_ranks(torch.compile(parted, backend="pjrt")(x))] == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="a rank was taken for a condition"):
        torch.compile(lambda t: t * 2 if group.rank() == 0 else t, backend="pjrt")(x)


what = sys.argv[1]
{
    "functions": functions,
    "placements": placements,
    "training": training,
    "sharding": sharding,
    "steps": steps,
    "branches": branches,
    "threads": threads,
    "ranks": ranks,
}[what]()
print(json.dumps(what))
