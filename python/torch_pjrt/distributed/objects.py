"""Python objects that ``torch.distributed`` sends between ranks.

A world in one process has one copy of each object, shared by all ranks. Broadcasts are thus no-ops, and objects that
differ between ranks don't exist.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import


def has_world(group: Any) -> bool:
    """Whether the group belongs to a world of this device."""
    from torch.distributed import distributed_c10d

    group = group or distributed_c10d._get_default_group()
    ours = torch.device("pjrt")
    return _C.world_size() > 1 and ours in group._device_types and group._get_backend(ours).name() == "pjrt"


def _broadcast_by_any(utilities: Any) -> None:
    """Patches the broadcast of a function's result: every rank that calls it is this one process."""
    inner = utilities.broadcast

    @functools.wraps(inner)
    def broadcast(data_or_fn: Any, *, rank: int = 0, pg: Any = None, **how: Any) -> Any:
        return inner(data_or_fn, rank=0 if has_world(pg) else rank, pg=pg, **how)

    utilities.broadcast = broadcast


def install() -> None:
    """Installs the patches; called once a world has begun."""
    from torch.distributed import distributed_c10d

    broadcast, scatter = distributed_c10d.broadcast_object_list, distributed_c10d.scatter_object_list
    gather, wait = distributed_c10d.gather_object, distributed_c10d.monitored_barrier

    @functools.wraps(broadcast)
    def broadcast_object_list(
        object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: Any = None
    ) -> None:
        if not has_world(group):
            broadcast(object_list, src, group, device, group_src)

    @functools.wraps(scatter)
    def scatter_object_list(
        scatter_object_output_list: list[Any],
        scatter_object_input_list: Any = None,
        src: int | None = None,
        group: Any = None,
        group_src: Any = None,
    ) -> None:
        if has_world(group):
            raise NotImplementedError(
                f"scatter_object_list gives each rank an object of its own, and Python runs once for all "
                f"{_C.world_size()} ranks of this world. What ranks have of their own are values of tensors: "
                "torch_pjrt.distributed.split(x, mesh) gives each its part of x. For objects, start a process for each "
                "rank with torchrun"
            )
        scatter(scatter_object_output_list, scatter_object_input_list, src, group, group_src)

    @functools.wraps(gather)
    def gather_object(
        obj: Any, object_gather_list: Any = None, dst: int | None = None, group: Any = None, group_dst: Any = None
    ) -> None:
        if not has_world(group):
            return gather(obj, object_gather_list, dst, group, group_dst)
        if object_gather_list is None:
            raise NotImplementedError(
                f"gather_object to rank {dst if group_dst is None else group_dst}: the one process of a world is rank "
                "0, which has no list of results then. Gather to rank 0, or call torch.distributed.all_gather_object"
            )
        torch.distributed.all_gather_object(object_gather_list, obj, group)

    @functools.wraps(wait)
    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        if not has_world(group):
            wait(group, timeout, wait_all_ranks)

    after_import("torch.distributed.collective_utils", _broadcast_by_any)
    for function in (broadcast_object_list, scatter_object_list, gather_object, monitored_barrier):
        setattr(distributed_c10d, function.__name__, function)
        setattr(torch.distributed, function.__name__, function)
