"""``torch.distributed.checkpoint`` and ``torch.save`` in a world: this process writes the shards of all ranks."""

from __future__ import annotations

import functools
import inspect
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, ClassVar

import torch
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.distributed.ragged import ragged, rows_of
from torch_pjrt.distributed.rank import PerRank, per_rank, select


class _Load:
    """One load: the tensors to load, and the shards of them that have been read, by offsets.

    Loads may run in several threads, and a reader may have its own threads. A tensor's load is therefore found by the
    tensor, and by the thread only for tensors that a planner made itself.
    """

    of_tensors: ClassVar[dict[int, _Load]] = {}  # by the id of a tensor, which the load keeps alive
    under_way: ClassVar[ContextVar[_Load | None]] = ContextVar("load", default=None)

    def __init__(self, state: Any) -> None:
        tensors = [leaf for leaf in pytree.tree_leaves(state) if hasattr(leaf, "device_mesh")]
        self.read: dict[int, tuple[Any, dict[Shard, torch.Tensor]]] = {id(t): (t, {}) for t in tensors}

    def __enter__(self) -> _Load:
        self.of_tensors.update(dict.fromkeys(self.read, self))
        self.outer = self.under_way.set(self)
        return self

    def __exit__(self, *exception: object) -> None:
        self.under_way.reset(self.outer)
        for tensor in self.read:
            if self.of_tensors.get(tensor) is self:
                del self.of_tensors[tensor]

    @classmethod
    def reading(cls, tensor: Any) -> dict[Shard, torch.Tensor] | None:
        """Returns the dict to which the shards of a tensor are added that is being loaded, or None."""
        load = cls.of_tensors.get(id(tensor)) or cls.under_way.get()
        return None if load is None else load.read.setdefault(id(tensor), (tensor, {}))[1]

    def write(self) -> None:
        """Writes the shards that were read to their tensors."""
        for tensor, shards in self.read.values():
            if shards:
                _write(tensor, shards)


def _refuse(tensor: Any, what: str) -> None:
    coordinates = tensor.device_mesh.get_coordinate() or ()
    parts = zip(coordinates, tensor.placements, strict=False)
    if any(isinstance(place, PerRank) and not placement.is_replicate() for place, placement in parts):
        raise NotImplementedError(
            f"{what}: a DTensor whose shards are on the devices of one process, of which it would write the first "
            "rank's alone. torch.distributed.checkpoint.save writes all of them; or save full_tensor(), or take "
            "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"
        )


Shard = tuple[torch.Size, torch.Size]  # its offsets in the whole tensor, and its sizes


def shards_of(tensor: Any) -> list[Shard]:
    """Returns each rank's shard of a DTensor, without padding (Note [Ragged])."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if tensor._local_tensor.device.type != "pjrt":
        _refuse(tensor, "a copy on the CPU")
    ranks = range(_C.world_size())
    if ragged(tensor._spec):
        rows = [rows_of(tensor._spec, rank) for rank in ranks]
        return [(torch.Size(r.first for r in own), torch.Size(r.count for r in own)) for own in rows]
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    begins = [torch.Size(o.values[rank] if isinstance(o, PerRank) else o for o in offsets) for rank in ranks]
    return [(begin, torch.Size(sizes)) for begin in begins]


def _values(tensor: Any, rank: int, size: torch.Size) -> torch.Tensor:
    """Returns a rank's values without padding, on the CPU."""
    values = _C.values_of_rank(tensor._local_tensor.detach(), rank)
    return values[tuple(map(slice, size))]


def _write(tensor: Any, read: dict[Shard, torch.Tensor]) -> None:
    """Writes the shards that were read to the ranks that have them."""
    of_ranks = shards_of(tensor)
    local = tensor._local_tensor.detach()
    places = list(dict.fromkeys(of_ranks))
    rows = []
    for place in places:
        whole = _C.values_of_rank(local, of_ranks.index(place))
        if place in read:
            whole = torch.zeros_like(whole)
            whole[tuple(map(slice, place[1]))] = read[place]
        rows.append(whole)
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

        properties = TensorProperties.create_from_tensor(self._local_tensor)
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
        there = dict.fromkeys(shard for shard in shards_of(self) if 0 not in shard[1] or 0 in self.shape)
        return [ChunkStorageMetadata(*shard) for shard in there]

    @functools.wraps(shard)
    def __get_tensor_shard__(self: Any, index: Any) -> torch.Tensor:
        if not is_of_world(self):
            return shard(self, index)
        of_ranks = shards_of(self)
        begins = [begin for begin, size in of_ranks]
        rank = 0 if index.offset is None else begins.index(index.offset)
        values = functools.partial(_values, self, rank, of_ranks[rank][1])
        read = _Load.reading(self)
        if read is None:
            return values()
        if of_ranks[rank] not in read:
            read[of_ranks[rank]] = values()
        return read[of_ranks[rank]]

    kind.__create_write_items__ = __create_write_items__
    kind.__create_chunk_list__ = __create_chunk_list__
    kind.__get_tensor_shard__ = __get_tensor_shard__


def _write_what_was_read(loader: Any) -> None:
    inner = loader._load_state_dict

    @functools.wraps(inner)
    def _load_state_dict(state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        with _Load(state_dict) as load:
            result = inner(state_dict, *args, **kwargs)
        load.write()
        return result

    loader._load_state_dict = _load_state_dict


def _write_alone(of_checkpoints: Any) -> None:
    """Makes one process plan alone: plans are balanced among ranks, and the parts of other ranks would be lost."""
    inner = of_checkpoints._DistWrapper.__init__

    @functools.wraps(inner)
    def __init__(self: Any, group: Any, use_dist: bool, coordinator_rank: int) -> None:
        inner(self, group, use_dist and _C.world_size() == 1, coordinator_rank)

    of_checkpoints._DistWrapper.__init__ = __init__


def _distribute_wholes(of_states: Any) -> None:
    """Patches ``StateDictOptions(broadcast_from_rank0=True)``: each rank takes its part of a broadcast tensor."""
    inner = of_states._distribute_tensors

    @functools.wraps(inner)
    def _distribute_tensors(state: dict[str, Any], keys: list[str], device: Any, pg: Any = None) -> None:
        if _C.world_size() == 1 or torch.device(device).type != "pjrt":
            return inner(state, keys, device, pg)
        for key in keys:
            if state.get(key) is None or torch.is_tensor(state[key]):
                continue
            own, whole = state[key]
            if own.is_meta:
                own = torch.empty_like(own, device="pjrt")
            values = whole.detach().cpu()
            _write(own, {place: values[_slices(*place)] for place in shards_of(own)})
            state[key] = own

    of_states._distribute_tensors = _distribute_tensors


def _promise_wholes(of_states: Any) -> None:
    """Patches ``StateDictOptions(full_state_dict=True)``, which gathers shards into replicas and copies these to the
    host. DTensor states that the replicas are equal (Note [Replication analysis])."""
    inner = of_states._iterate_state_dict

    class Promised:
        def __init__(self, gather: Any) -> None:
            self.gather = gather

        def __call__(self, *args: Any) -> Any:
            gathered = self.gather(*args)
            is_local = type(gathered) is torch.Tensor and gathered.device.type == "pjrt"
            return _C.promised_equal(gathered) if is_local and _C.world_size() > 1 else gathered

    @functools.wraps(inner)
    def _iterate_state_dict(state: Any, of_sharded: Any, of_dtensor: Any, *args: Any, **kwargs: Any) -> Any:
        gather = of_dtensor if isinstance(of_dtensor, Promised) else Promised(of_dtensor)
        return inner(state, of_sharded, gather, *args, **kwargs)

    of_states._iterate_state_dict = _iterate_state_dict


def _slices(first: torch.Size, size: torch.Size) -> tuple[slice, ...]:
    return tuple(slice(begin, begin + length) for begin, length in zip(first, size, strict=True))


def _save_at_once(package: Any) -> None:
    """Patches ``async_save``, whose stager would copy one rank's shards: it saves before it returns."""
    inner = package.async_save
    taken = inspect.signature(package.save).parameters

    @functools.wraps(inner)
    def async_save(state_dict: Any, **kwargs: Any) -> Any:
        if _C.world_size() == 1:
            return inner(state_dict, **kwargs)
        saved: Future[Any] = Future()
        saved.set_result(package.save(state_dict, **{name: kwargs[name] for name in kwargs if name in taken}))
        return saved

    package.async_save = package.state_dict_saver.async_save = async_save


def _pickle_no_shards(of_tensors: Any) -> None:
    inner = of_tensors.DTensor.__reduce_ex__

    @functools.wraps(inner)
    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        if self.device.type == "pjrt":
            _refuse(self, "pickle and torch.save")
        return inner(self, protocol)

    of_tensors.DTensor.__reduce_ex__ = __reduce_ex__


def install() -> None:
    """Installs the patches; called once a world has begun."""
    after_import("torch.distributed.checkpoint.utils", _write_alone)
    after_import("torch.distributed.checkpoint.state_dict_loader", _write_what_was_read)
    after_import("torch.distributed._state_dict_utils", _distribute_wholes)
    after_import("torch.distributed._state_dict_utils", _promise_wholes)
    after_import("torch.distributed.checkpoint", _save_at_once)
    after_import("torch.distributed.tensor", _take_shards)
    after_import("torch.distributed.tensor", _pickle_no_shards)
