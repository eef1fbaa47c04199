"""``torch.distributed.checkpoint`` and ``torch.save``: a process writes its rank's shards, and here it is all ranks."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.distributed.rank import PerRank, per_rank, select

# Of the load that is under way: the tensors that it reads shards of, and what it has read of them, by offsets.
_loading: list[dict[int, tuple[Any, dict[torch.Size, torch.Tensor]]]] = []


def _refuse(tensor: Any, what: str) -> None:
    coordinates = tensor.device_mesh.get_coordinate() or ()
    parts = zip(coordinates, tensor.placements, strict=False)
    if any(isinstance(place, PerRank) and not placement.is_replicate() for place, placement in parts):
        raise NotImplementedError(
            f"{what}: a DTensor whose shards lie on the devices of one process, of which it would write the first "
            "rank's alone. torch.distributed.checkpoint.save writes all of them; or save full_tensor(), or take "
            "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"
        )


def shards_of(tensor: Any) -> tuple[torch.Size, list[torch.Size]]:
    """The size of a DTensor's shards, and where in the whole tensor each rank's begins."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if tensor.to_local().device.type != "pjrt":
        _refuse(tensor, "a copy on the CPU")
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    of_ranks = [
        torch.Size(offset.values[rank] if isinstance(offset, PerRank) else offset for offset in offsets)
        for rank in range(_C.world_size())
    ]
    return torch.Size(sizes), of_ranks


def _write(tensor: Any, read: dict[torch.Size, torch.Tensor]) -> None:
    """Gives each rank its shard, of those that were read."""
    _, of_ranks = shards_of(tensor)
    local = tensor.to_local().detach()
    places = list(dict.fromkeys(of_ranks))
    rows = [read[place] if place in read else _C.values_of_rank(local, of_ranks.index(place)) for place in places]
    own = per_rank(places.index(place) for place in of_ranks)
    local.copy_(select(torch.stack(rows).to("pjrt"), 0, own))


def _take_shards(of_tensors: Any) -> None:
    kind = of_tensors.DTensor
    items, chunks, shard = kind.__create_write_items__, kind.__create_chunk_list__, kind.__get_tensor_shard__

    def is_of_world(tensor: Any) -> bool:
        return tensor.device_mesh.device_type == "pjrt"

    @functools.wraps(items)
    def __create_write_items__(self: Any, fqn: str, value: Any) -> Any:
        if not is_of_world(self):
            return items(self, fqn, value)
        from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
        from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

        properties = TensorProperties.create_from_tensor(self.to_local())
        return [
            WriteItem(
                MetadataIndex(fqn, chunk.offsets),
                WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk, properties, self.size()),
            )
            for chunk in self.__create_chunk_list__()
        ]

    @functools.wraps(chunks)
    def __create_chunk_list__(self: Any) -> Any:
        if not is_of_world(self):
            return chunks(self)
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        self._raise_if_contains_partial_placements()
        sizes, of_ranks = shards_of(self)
        return [ChunkStorageMetadata(offsets, sizes) for offsets in dict.fromkeys(of_ranks)]

    @functools.wraps(shard)
    def __get_tensor_shard__(self: Any, index: Any) -> torch.Tensor:
        if not is_of_world(self):
            return shard(self, index)
        _, of_ranks = shards_of(self)
        rank = 0 if index.offset is None else of_ranks.index(index.offset)
        values = functools.partial(_C.values_of_rank, self.to_local(), rank)
        if not _loading:
            return values()
        _, read = _loading[-1].setdefault(id(self), (self, {}))
        if of_ranks[rank] not in read:
            read[of_ranks[rank]] = values()
        return read[of_ranks[rank]]

    kind.__create_write_items__ = __create_write_items__
    kind.__create_chunk_list__ = __create_chunk_list__
    kind.__get_tensor_shard__ = __get_tensor_shard__


def _write_what_was_read(loader: Any) -> None:
    inner = loader._load_state_dict

    @functools.wraps(inner)
    def _load_state_dict(*args: Any, **kwargs: Any) -> Any:
        _loading.append({})
        try:
            result = inner(*args, **kwargs)
        finally:
            read = _loading.pop()
        for tensor, shards in read.values():
            _write(tensor, shards)
        return result

    loader._load_state_dict = _load_state_dict


def _write_alone(of_checkpoints: Any) -> None:
    """Plans are balanced among the ranks, which one process is here: what others were to write would be lost."""
    inner = of_checkpoints._DistWrapper.__init__

    @functools.wraps(inner)
    def __init__(self: Any, group: Any, use_dist: bool, coordinator_rank: int) -> None:
        inner(self, group, use_dist and _C.world_size() == 1, coordinator_rank)

    of_checkpoints._DistWrapper.__init__ = __init__


def _pickle_no_shards(of_tensors: Any) -> None:
    inner = of_tensors.DTensor.__reduce_ex__

    @functools.wraps(inner)
    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        if self.device.type == "pjrt":
            _refuse(self, "pickle and torch.save")
        return inner(self, protocol)

    of_tensors.DTensor.__reduce_ex__ = __reduce_ex__


def install() -> None:
    """Once a world has begun."""
    after_import("torch.distributed.checkpoint.utils", _write_alone)
    after_import("torch.distributed.checkpoint.state_dict_loader", _write_what_was_read)
    after_import("torch.distributed.tensor", _take_shards)
    after_import("torch.distributed.tensor", _pickle_no_shards)
