"""Each rank's part of a batch that is no DTensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torch_pjrt.distributed.rank import PerRank, select

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def split(batch: torch.Tensor, mesh: DeviceMesh, dim: int = 0) -> torch.Tensor:
    """The part of `batch` that a rank has by its coordinate in the one dimension of `mesh`.

    `batch` is the whole batch, on the CPU or on the device, the same on all ranks; its dimension `dim` divides by the
    mesh's size n, and the result has 1/n of it, on the device. With a process for each rank (torchrun) it is the part
    of this process's rank. Raises ValueError for a mesh of several dimensions, and where `dim` doesn't divide, and
    TypeError for what is no tensor.
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
    return part.clone()  # else of memory of another shape, which each call of a compiled function would copy
