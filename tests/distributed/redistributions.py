"""Every redistribution of a DTensor of two dimensions, for a world and for PyTorch's own ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

SHAPES = [(8, 12), (10, 7)]  # the second is one that doesn't divide
Start = tuple[tuple[Any, ...], DTensor, list[tuple[Any, ...]]]


def numbered(shape: tuple[int, int]) -> torch.Tensor:
    return torch.arange(float(shape[0] * shape[1])).view(shape)


def starts(shape: tuple[int, int], mesh: DeviceMesh) -> Iterator[Start]:
    """Yields placements, the numbered tensor with them, and the placements to redistribute it to."""
    x = numbered(shape)
    every = [Replicate(), Shard(0), Shard(1), Partial()]
    others = [Partial("avg"), Partial("max")] if mesh.ndim == 1 else []  # equal on all ranks, they are what they were
    for source in itertools.product([*every, *others], repeat=mesh.ndim):
        share = 1
        for dim, placement in enumerate(source):
            share *= mesh.size(dim) if placement == Partial() else 1
        whole = [Replicate() if placement.is_partial() else placement for placement in source]
        local = distribute_tensor(x, mesh, whole)._local_tensor / share
        start = DTensor.from_local(local, mesh, source, run_check=False, shape=x.shape, stride=x.stride())
        yield source, start, list(itertools.product(every[:3], repeat=mesh.ndim))
