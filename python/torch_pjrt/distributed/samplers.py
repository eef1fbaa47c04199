"""``DistributedSampler``, which asks for the process's rank and would give all ranks the first one's part."""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.data.distributed import DistributedSampler

from torch_pjrt import _C


def install() -> None:
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
