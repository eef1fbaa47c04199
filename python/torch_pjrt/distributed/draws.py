"""Random numbers of a sharded DTensor: each shard's own, and those of its replicas the same.

A program draws with one key for all ranks. So the numbers of all shards are drawn, and each rank takes its shard's.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.distributed.rank import PerRank, select


class _OfAllShards(TorchDispatchMode):
    """Random ops are called once for each of the `shards`, by the generator of the user's call if there is one, and a
    rank takes what its `index` says."""

    def __init__(self, shards: int, index: PerRank, generator: torch.Generator | None) -> None:
        super().__init__()
        self._shards, self._index, self._generator = shards, index, generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        if self._generator is not None:  # DTensor has taken it out of the call
            kwargs = {**kwargs, "generator": self._generator}

        def own(*of_shards: Any) -> Any:
            if not isinstance(of_shards[0], torch.Tensor):
                return of_shards[0]
            return select(torch.stack(of_shards), 0, self._index).contiguous()

        if func._schema.is_mutable:  # its first argument, which it gives
            written = args[0]
            of_shards = [func(written.clone(), *args[1:], **kwargs) for _ in range(self._shards)]
            return written.copy_(own(*of_shards))
        return pytree.tree_map(own, *(func(*args, **kwargs) for _ in range(self._shards)))


def _draw(random: Any) -> None:
    kind = random.OffsetBasedRNGTracker
    inner = kind._distribute_region

    @functools.wraps(inner)
    @contextlib.contextmanager
    def _distribute_region(self: Any, spec: Any, generator: Any = None) -> Iterator[None]:
        places = [spec.mesh._sym_get_coordinate(dim) for dim in range(spec.mesh.ndim)]
        indices, counts = random._calc_shard_info(places, spec)
        index = self._calc_shard_linear_idx(indices, counts)
        if spec.mesh.device_type != "pjrt" or not isinstance(index, PerRank):
            with inner(self, spec, generator):
                yield
            return
        with _OfAllShards(math.prod(counts), index, generator):
            yield

    kind._distribute_region = _distribute_region


def install() -> None:
    """Once a world has begun."""
    after_import("torch.distributed.tensor._random", _draw)
