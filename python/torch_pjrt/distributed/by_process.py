"""Adapts or refuses classes that assign work by process, because all ranks of a world would do the work of rank 0."""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.data.distributed import DistributedSampler

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import


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


def install() -> None:
    """Installs the patches; called once a world has begun."""
    _sample_whole_batches()
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
