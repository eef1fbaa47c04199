"""Adapts or refuses classes that assign work by process, because all ranks of a world would do the work of rank 0."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import distributed_c10d
from torch.utils.data.distributed import DistributedSampler

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.distributed.group_ranks import places
from torch_pjrt.distributed.objects import has_world
from torch_pjrt.distributed.rank import PerRank


def _refuse(kind: Any, cure: str) -> None:
    inner = kind.__init__

    @functools.wraps(inner)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"{kind.__name__}: the process of a rank has parameters of its own to keep, and this process is all "
            f"{_C.world_size()} ranks of its world. {cure}, or start a process for each rank with torchrun"
        )

    kind.__init__ = __init__


def _sample_whole_batches() -> None:
    inner = DistributedSampler.__init__

    @functools.wraps(inner)
    def __init__(
        self: Any, dataset: Any, num_replicas: Any = None, rank: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        if _C.world_size() > 1 and rank is None:
            raise RuntimeError(
                "DistributedSampler: this process is all "
                f"{_C.world_size()} ranks of its world, and would load the first one's samples for all of them. Load "
                "whole batches, and give each rank its part with torch_pjrt.distributed.split(batch, mesh), or pass "
                "rank= and num_replicas="
            )
        inner(self, dataset, num_replicas, rank, *args, **kwargs)

    DistributedSampler.__init__ = __init__


def _on_one_rank(tensor: torch.Tensor, rank: int, group: Any) -> torch.Tensor:
    """Returns the tensor on this rank of each group, and zeros on the others."""
    group = group or distributed_c10d._get_default_group()
    is_there = places(group) == distributed_c10d.get_group_rank(group, rank)
    if not isinstance(is_there, PerRank):  # a group of one
        return tensor
    return torch.where(is_there.tensor(), tensor, 0)


def _differentiate(functional: Any) -> None:
    """Patches collectives with gradients: PyTorch lets one rank call what the others don't, or zeroes their results."""
    broadcast, gather, scatter = functional._Broadcast, functional._Gather, functional._Scatter

    def of_world(kind: Any, name: str, patched: Callable[..., Any], group_of: Callable[..., Any]) -> None:
        inner = getattr(kind, name)

        @functools.wraps(inner)
        def method(*args: Any) -> Any:
            return (patched if has_world(group_of(*args)) else inner)(*args)

        setattr(kind, name, staticmethod(method))

    def backward_of_broadcast(ctx: Any, gradient: torch.Tensor) -> Any:
        summed = functional._Reduce.apply(ctx.src, torch.distributed.ReduceOp.SUM, ctx.group, gradient)
        return None, None, _on_one_rank(summed, ctx.src, ctx.group)

    def gathered(ctx: Any, dst: int, group: Any, tensor: torch.Tensor) -> Any:
        ctx.dst, ctx.group = dst, group
        parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size(group))]
        torch.distributed.all_gather(parts, tensor.contiguous(), group)
        return tuple(_on_one_rank(part, dst, group) for part in parts)

    def scattered(ctx: Any, src: int, group: Any, *parts: torch.Tensor) -> Any:
        ctx.src, ctx.group = src, group
        part = torch.empty_like(parts[0])
        torch.distributed.scatter(part, list(parts), src, group)  # which takes the source's parts
        return part

    of_world(broadcast, "backward", backward_of_broadcast, lambda ctx, *_: ctx.group)
    of_world(gather, "forward", gathered, lambda ctx, dst, group, *_: group)
    of_world(scatter, "forward", scattered, lambda ctx, src, group, *_: group)


def install() -> None:
    """Installs the patches; called once a world has begun."""
    _sample_whole_batches()
    after_import("torch.distributed.nn.functional", _differentiate)
    after_import(
        "torch.distributed.fsdp.fully_sharded_data_parallel",
        lambda module: _refuse(
            module.FullyShardedDataParallel, "Shard with torch.distributed.fsdp.fully_shard(module, mesh=mesh)"
        ),
    )
    after_import(
        "torch.distributed.optim.zero_redundancy_optimizer",
        lambda module: _refuse(
            module.ZeroRedundancyOptimizer,
            "Take any optimizer of torch.optim with torch.distributed.fsdp.fully_shard, which shards its state",
        ),
    )
