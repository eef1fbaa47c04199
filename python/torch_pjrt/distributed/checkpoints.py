"""``torch.distributed.checkpoint`` and ``torch.save``: a process writes its rank's shards, and here it is all ranks."""

from __future__ import annotations

import functools
from typing import Any

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.distributed.rank import PerRank


def _refuse(tensor: Any, what: str) -> None:
    coordinates = tensor.device_mesh.get_coordinate() or ()
    parts = zip(coordinates, tensor.placements, strict=False)
    if any(isinstance(place, PerRank) and not placement.is_replicate() for place, placement in parts):
        raise NotImplementedError(
            f"{what}: a DTensor whose shards lie on the devices of one process, which "
            "would write and read the first rank's alone. Save full_tensor(), or take "
            "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"
        )


def _refuse_shards(planner: Any) -> None:
    for name in ("_create_write_items_for_dtensor", "_create_chunk_from_dtensor"):
        inner = getattr(planner, name)

        @functools.wraps(inner)
        def checked(*args: Any, inner: Any = inner) -> Any:
            _refuse(args[-1], "torch.distributed.checkpoint")
            return inner(*args)

        setattr(planner, name, checked)


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
    after_import("torch.distributed.checkpoint.planner_helpers", _refuse_shards)
    after_import("torch.distributed.tensor", _pickle_no_shards)
