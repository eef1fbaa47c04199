"""The uses of a rank in DTensor and FSDP2: a mesh's coordinates, and a rank's part of a tensor.

The rest of their code uses sizes and placements, which all ranks share.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import _disable_current_modes

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.distributed.ragged import is_plain, refuse
from torch_pjrt.distributed.rank import PerRank, per_rank, select


def coordinates(mesh: DeviceMesh) -> tuple[Any, ...]:
    """Returns each rank's coordinate in each dimension of its mesh. A mesh of one dimension (``mesh["dp"]``) exists for
    each coordinate of the other dimensions, and every rank is in one of them."""
    size = _C.world_size()
    meshes = mesh._layout.remap_to_tensor(mesh._rank_map.cpu())  # (mesh, coordinates...) -> rank
    places: list[list[int]] = [[-1] * size for _ in range(mesh.ndim)]
    for *place, rank in ((*index.tolist(), int(meshes[tuple(index)])) for index in torch.ones_like(meshes).nonzero()):
        for dim in range(mesh.ndim):
            places[dim][rank] = place[dim + 1]
    if any(-1 in place for place in places):
        missing = [rank for rank in range(size) if places[0][rank] < 0]
        raise NotImplementedError(
            f"a mesh without ranks {missing}: in a world in one process all {size} ranks run one program, so every "
            "mesh has all of them; make one of the whole world and take its dimensions"
        )
    return tuple(per_rank(place) for place in places)


def _take_coordinates() -> None:
    cached = "_torch_pjrt_coordinates"

    def places(mesh: DeviceMesh) -> tuple[Any, ...]:
        if not hasattr(mesh, cached):
            setattr(mesh, cached, coordinates(mesh))
        return tuple(getattr(mesh, cached))

    def get_coordinate(self: DeviceMesh) -> tuple[Any, ...] | None:
        return places(self) if self.device_type == "pjrt" else self._coordinate_on_dim

    inner = DeviceMesh._sym_get_coordinate

    @functools.wraps(inner)
    def _sym_get_coordinate(self: DeviceMesh, index: int) -> Any:
        return places(self)[index] if self.device_type == "pjrt" else inner(self, index)

    inner_rank = DeviceMesh.get_local_rank

    @functools.wraps(inner_rank)
    def get_local_rank(self: DeviceMesh, mesh_dim: int | str | None = None) -> Any:
        if self.device_type != "pjrt" or (self.ndim > 1 and mesh_dim is None):
            return inner_rank(self, mesh_dim)
        if isinstance(mesh_dim, str):
            mesh_dim = self._mesh_dim_names.index(mesh_dim) if self.ndim > 1 else 0
        return places(self)[mesh_dim or 0]

    DeviceMesh.get_coordinate = get_coordinate
    DeviceMesh._sym_get_coordinate = _sym_get_coordinate
    DeviceMesh.get_local_rank = get_local_rank


def _chunk_size(size: int, chunks: int) -> int:
    """Returns the size of the first chunk; the last ones are padded to it (Note [Ragged])."""
    return -(-size // chunks)


def _adapt_placements(types: Any) -> None:
    inner_select = types.Shard._select_split_tensor

    @functools.wraps(inner_select)
    def _select_split_tensor(self: Any, tensor: Any, num_chunks: int, index: Any, **how: Any) -> Any:
        if not isinstance(index, PerRank):
            return inner_select(self, tensor, num_chunks, index, **how)
        chunk = _chunk_size(tensor.size(self.dim), num_chunks)
        padded = types.pad_tensor(tensor, self.dim, chunk * num_chunks - tensor.size(self.dim))
        return select(padded.unflatten(self.dim, (num_chunks, chunk)), self.dim, index).contiguous()

    inner_strided = types._StridedShard._select_split_tensor

    @functools.wraps(inner_strided)
    def _select_strided(self: Any, tensor: Any, num_chunks: int, index: Any, **how: Any) -> Any:
        if not isinstance(index, PerRank):
            return inner_strided(self, tensor, num_chunks, index, **how)
        parts, _ = self._split_tensor(tensor, num_chunks, with_padding=False, contiguous=False)
        if len({part.size(self.dim) for part in parts}) > 1:
            refuse(tensor.size(self.dim), num_chunks, f"{self} of {list(tensor.shape)}")
        return select(torch.stack(parts), 0, index).contiguous()

    inner_strided_size = types._StridedShard.local_shard_size_and_offset

    @functools.wraps(inner_strided_size)
    def strided_size_and_offset(
        self: Any, curr_local_size: Any, num_chunks: int, rank: Any, *args: Any, **how: Any
    ) -> Any:
        if not isinstance(rank, PerRank):
            return inner_strided_size(self, curr_local_size, num_chunks, rank, *args, **how)
        of_ranks = [inner_strided_size(self, curr_local_size, num_chunks, one, *args, **how) for one in rank.values]
        sizes, offsets = zip(*of_ranks, strict=True)
        if len(set(sizes)) > 1:
            refuse(curr_local_size, num_chunks, str(self))
        return sizes[0], None if offsets[0] is None else per_rank(offsets)

    inner_unpad = types.Shard._maybe_unpad_tensor_with_sizes

    def _maybe_unpad_tensor_with_sizes(dim: int, local: Any, pads: Any, rank: Any, make_contiguous: bool) -> Any:
        return local if isinstance(rank, PerRank) else inner_unpad(dim, local, pads, rank, make_contiguous)

    inner_size = types.Shard.local_shard_size_and_offset

    def local_shard_size_and_offset(curr_local_size: Any, num_chunks: int, rank: Any) -> Any:
        if isinstance(rank, PerRank):
            chunk = _chunk_size(curr_local_size, num_chunks)
            return chunk, per_rank(min(chunk * one, curr_local_size) for one in rank.values)
        return inner_size(curr_local_size, num_chunks, rank)

    types.Shard._select_split_tensor = _select_split_tensor
    types._StridedShard._select_split_tensor = _select_strided
    types._StridedShard.local_shard_size_and_offset = strided_size_and_offset
    types.Shard._maybe_unpad_tensor_with_sizes = staticmethod(_maybe_unpad_tensor_with_sizes)
    types.Shard.local_shard_size_and_offset = staticmethod(local_shard_size_and_offset)


class _PerRankOffsets:
    """The offsets of each rank's rows in a sharded dimension of ``size`` of the whole tensor: one tensor per rank."""

    def __init__(self, of_ranks: list[torch.Tensor], size: int) -> None:
        self.of_ranks, self.size = of_ranks, size


def _adapt_offsets(shapes: Any) -> None:
    """Patches the offsets of a rank's shard, which DTensor's argmax, checkpoints and others use."""
    inner, inner_first = shapes._get_shard_size_and_offsets, shapes._get_first_offset

    @functools.wraps(inner)
    def _get_shard_size_and_offsets(
        size: Any, chunks: Any, rank: Any, placement: Any, previous: Any, zero: Any, skip_offset: Any
    ) -> tuple[Any, Any]:
        if not isinstance(rank, PerRank) and not isinstance(previous, _PerRankOffsets):
            return inner(size, chunks, rank, placement, previous, zero, skip_offset)
        if skip_offset and is_plain(placement):
            return _chunk_size(size, chunks), None
        ranks = rank.values if isinstance(rank, PerRank) else (rank,) * _C.world_size()
        before = previous.of_ranks if isinstance(previous, _PerRankOffsets) else [previous] * len(ranks)
        with _disable_current_modes():  # offsets are read, and tensors in a trace have no values
            if is_plain(placement):
                chunk = _chunk_size(size, chunks)
                rows = (torch.arange(size) if offsets is None else offsets for offsets in before)
                own = [whole[one * chunk : (one + 1) * chunk] for one, whole in zip(ranks, rows, strict=True)]
                return chunk, _PerRankOffsets(own, zero)
            found = [
                inner(size, chunks, one, placement, offsets, zero, skip_offset)
                for one, offsets in zip(ranks, before, strict=True)
            ]
        if len({shard for shard, _ in found}) > 1:
            refuse(size, chunks, str(placement))
        return found[0][0], None if skip_offset else _PerRankOffsets([offsets for _, offsets in found], zero)

    @functools.wraps(inner_first)
    def _get_first_offset(offsets: Any) -> Any:
        if isinstance(offsets, _PerRankOffsets):
            with _disable_current_modes():
                return per_rank([inner_first(own) if len(own) else offsets.size for own in offsets.of_ranks])
        return inner_first(offsets)

    shapes._get_shard_size_and_offsets, shapes._get_first_offset = _get_shard_size_and_offsets, _get_first_offset


def _number_each_shard(factories: Any) -> None:
    """Patches DTensor's ``linspace`` and ``logspace``, which begin where the rank's rows do."""

    def of_ranks(inner: Any) -> Any:
        @functools.wraps(inner)
        def local(*args: Any, requires_grad: bool = False, **kwargs: Any) -> Any:
            offset = args[-1]
            if not isinstance(offset, PerRank):
                return inner(*args, requires_grad=requires_grad, **kwargs)
            each = torch.stack([inner(*args[:-1], own, **kwargs) for own in offset.values])
            return select(each, 0, per_rank(range(len(each)))).requires_grad_(requires_grad)

        return local

    for name in ("_linspace_local_tensor", "_logspace_local_tensor"):
        if hasattr(factories, name):  # since torch 2.15
            setattr(factories, name, of_ranks(getattr(factories, name)))


class _Chunks(list[torch.Tensor]):
    """A parameter's chunks along ``dim``, selected by each rank; the last ones are padded to the size of the first."""

    dim: int

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, PerRank):
            return super().__getitem__(index)
        first, padded = super().__getitem__(0), []
        for chunk in self:
            if chunk.dim() != first.dim():  # a chunk without rows
                chunk = chunk.new_empty([*first.shape[: self.dim], 0, *first.shape[self.dim + 1 :]])
            short = first.shape[self.dim] - chunk.shape[self.dim]
            rest = chunk.new_zeros([*first.shape[: self.dim], short, *first.shape[self.dim + 1 :]])
            padded.append(torch.cat([chunk, rest], self.dim) if short else chunk)
        return select(torch.stack(padded), 0, index)


def _adapt_parameters(parameters: Any) -> None:
    inner = parameters._chunk_with_empty

    @functools.wraps(inner)
    def _chunk_with_empty(tensor: torch.Tensor, num_chunks: int, dim: int) -> list[torch.Tensor]:
        chunks = _Chunks(inner(tensor, num_chunks, dim))
        chunks.dim = dim
        return chunks

    inner_init = parameters.FSDPParam.__init__

    arguments = inspect.signature(inner_init)

    @functools.wraps(inner_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = arguments.bind(self, *args, **kwargs).arguments
        is_offloaded = isinstance(given["offload_policy"], parameters.CPUOffloadPolicy)
        if is_offloaded and given["mesh_info"].mesh.device_type == "pjrt":
            raise NotImplementedError(
                "fully_shard: CPUOffloadPolicy keeps one shard on the host, and a process that is all ranks of its "
                "world has a shard of each. Leave offload_policy out, or start a process for each rank with torchrun"
            )
        inner_init(self, *args, **kwargs)

    parameters._chunk_with_empty = _chunk_with_empty
    parameters.FSDPParam.__init__ = __init__


def _adapt_meshes(meshes: Any) -> None:
    inner = meshes.FSDPMeshInfo.__post_init__

    @functools.wraps(inner)
    def __post_init__(self: Any) -> None:
        inner(self)
        if self.mesh.device_type == "pjrt":
            self.shard_mesh_rank = self.mesh.get_local_rank(self.shard_mesh_dim)

    meshes.FSDPMeshInfo.__post_init__ = __post_init__


def install() -> None:
    """Installs the patches; called once a world has begun."""
    _take_coordinates()
    after_import("torch.distributed.tensor.placement_types", _adapt_placements)
    after_import("torch.distributed.tensor._utils", _adapt_offsets)
    after_import("torch.distributed.tensor._api", _number_each_shard)
    after_import("torch.distributed.fsdp._fully_shard._fsdp_common", _adapt_meshes)
    after_import("torch.distributed.fsdp._fully_shard._fsdp_param", _adapt_parameters)
