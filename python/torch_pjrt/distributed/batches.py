"""Each rank's part of a batch that isn't a DTensor."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt.distributed.rank import PerRank, select

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def split(batch: torch.Tensor, mesh: DeviceMesh, dim: int = 0) -> torch.Tensor:
    """Returns the part of ``batch`` that belongs to each rank by its coordinate in a mesh of one dimension.

    Args:
        batch: the whole batch, on the CPU or on the device, equal on all ranks.
        mesh: a mesh of one dimension, of size n.
        dim: the dimension of ``batch`` to split, which n must divide.

    Returns:
        A tensor on the device with 1/n of ``dim``. With a process for each rank (torchrun), it is the part of this
        process's rank.

    Raises:
        ValueError: ``mesh`` has several dimensions, or n doesn't divide ``dim``.
        TypeError: ``batch`` is not a tensor, or has no dimensions.
    """
    if mesh.ndim != 1:
        raise ValueError(f"split: a mesh of {mesh.ndim} dimensions; take one of them, such as mesh['dp']")
    if not isinstance(batch, torch.Tensor) or batch.dim() == 0:
        kind = "a tensor without dimensions" if isinstance(batch, torch.Tensor) else type(batch).__name__
        raise TypeError(
            f"split: got {kind}, of which ranks have no parts; pass tensors with a dimension for samples, each by "
            "itself, as in {name: split(tensor, mesh) for name, tensor in batch.items()}"
        )
    parts, size = mesh.size(), batch.shape[dim]
    if size % parts:
        raise ValueError(
            f"split: dimension {dim} of {size} doesn't divide among {parts} ranks; drop the last samples, or pad"
        )
    rank = mesh.get_local_rank()
    if not isinstance(rank, PerRank):
        return batch.narrow(dim, rank * (size // parts), size // parts).to(mesh.device_type)
    dim %= batch.dim()
    part = select(batch.to(mesh.device_type).unflatten(dim, (parts, size // parts)), dim, rank)
    return part.clone()  # a view of larger memory would be copied by each call of a compiled function


class load_by_rank:
    """Iterates over the batches of loaders that load each rank's own data, one loader per rank.

    ``for batch in load_by_rank(make, mesh["dp"])`` is the counterpart of the loop of a program whose ranks are
    processes. ``make(rank, size)`` returns the loader of the rank at that coordinate of the mesh's one dimension, such
    as a ``DataLoader`` over ``split_dataset_by_node(dataset, rank, size)``. In a world it is called for each rank, and
    with a process for each rank (torchrun) for this process's. A batch has the structure of the loaders' batches, with
    tensors on the device.

    Raises:
        ValueError: the mesh has several dimensions, or the ranks' batches differ in their number, in shapes or in
            Python values. Only the values of tensors may differ.
    """

    def __init__(self, make: Callable[[int, int], Iterable[Any]], mesh: DeviceMesh) -> None:
        if mesh.ndim != 1:
            raise ValueError(
                f"load_by_rank: a mesh of {mesh.ndim} dimensions; take the one that splits data, such as mesh['dp']"
            )
        rank = mesh.get_local_rank()
        ranks = range(mesh.size()) if isinstance(rank, PerRank) else [rank]
        self._mesh = mesh
        self.loaders = [make(each, mesh.size()) for each in ranks]

    def __len__(self) -> int:
        return min(len(loader) for loader in self.loaders)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        missing = object()
        for number, batches in enumerate(zip_longest(*self.loaders, fillvalue=missing)):
            if any(batch is missing for batch in batches):
                ended = [rank for rank, batch in enumerate(batches) if batch is missing]
                raise ValueError(
                    f"load_by_rank: the loaders of ranks {ended} of {len(batches)} have {number} batches, and others "
                    "have more; give each rank as many samples, or take as many batches of each (itertools.islice)"
                )
            leaves = [pytree.tree_flatten(dict(batch) if isinstance(batch, UserDict) else batch) for batch in batches]
            values = [self._joined(of_ranks) for of_ranks in zip(*(own for own, _ in leaves), strict=True)]
            yield pytree.tree_unflatten(values, leaves[0][1])

    def _joined(self, values: tuple[Any, ...]) -> Any:
        """Joins the ranks' values of one leaf of a batch."""
        first = values[0]
        if not isinstance(first, torch.Tensor):
            if any(value != first for value in values):
                raise ValueError(
                    f"load_by_rank: ranks have {list(values)} in a batch, and Python runs once for all; make it "
                    "a tensor, which has a value for each rank"
                )
            return first
        if len(self.loaders) == 1:
            return first.to(self._mesh.device_type)
        if any((value.shape, value.dtype) != (first.shape, first.dtype) for value in values):
            raise ValueError(
                f"load_by_rank: ranks have tensors of shapes {[list(value.shape) for value in values]} in a batch, and "
                "one program runs for all of them; pad them, or drop the last batch (drop_last=True)"
            )
        of_ranks = torch.cat([value if value.dim() else value.reshape(1) for value in values])
        return split(of_ranks, self._mesh).reshape(first.shape)
