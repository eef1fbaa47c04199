"""A world in one process: ``init_process_group("pjrt", rank=0, world_size=N)`` over the plugin's devices.

``pjrt:0`` then is the world (Note [World], src/graph/world.h). torch.distributed works as it does for processes,
with two differences: no store is needed for a rendezvous, and a group stands for all groups of its kind.
"""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.distributed.groups import Groups

_groups: list[Groups] = []  # for the current process group; otherwise empty


def size() -> int:
    """Returns the number of ranks of this process: 1 without a world."""
    return _C.world_size()


def is_asked_for(backend: Any, init_method: Any, world_size: int, rank: int, store: Any) -> bool:
    """Whether one process is to be all ranks: the call and the environment name no other process."""
    alone = init_method is None and store is None and not {"MASTER_ADDR", "RANK"} & set(os.environ)
    return isinstance(backend, str) and backend.lower() == "pjrt" and alone and rank in (-1, 0) and world_size > 1


def _launcher_size(world_size: int) -> int:
    """Returns the size of the world, from the environment if none is passed, as for programs of torchrun."""
    reported = os.environ.get("WORLD_SIZE", "")
    return int(reported) if world_size == -1 and reported.isdecimal() else world_size


def _create(_store: Any, rank: int, group_size: int, _timeout: Any) -> Any:
    groups = _groups[-1]
    ranks = _creating.pop() if _creating else tuple(range(group_size))
    if rank != 0:
        raise NotImplementedError(
            f"a group of ranks {list(ranks)}, where rank 0 is number {rank}: in a world in one process the first of a "
            "group's ranks is 0; list the ranks in ascending order"
        )
    return groups.backend(ranks)


_creating: list[tuple[int, ...]] = []  # the group that is being made


def _check_backend(backend: str, ranks: int) -> None:
    """Raises for a backend that would wait for the processes of other ranks."""
    if ranks > 1 and backend.lower() not in ("pjrt", "fake", "undefined"):
        raise NotImplementedError(
            f"a group of backend {backend!r} needs a process for each of its {ranks} ranks, and this process is all "
            f"{size()} ranks of its world. Make groups of backend 'pjrt', or start a process for each rank with "
            "torchrun"
        )


def begin(world_size: int) -> None:
    from torch.distributed import distributed_c10d

    from torch_pjrt.distributed import (
        by_process,
        checkpoints,
        data_parallel,
        draws,
        group_ranks,
        losses,
        objects,
        ragged,
        replicas,
        shards,
    )

    _C.begin_world(world_size)
    _groups[:] = [Groups(world_size)]
    _groups[-1].ask(tuple(range(world_size)))
    plugin = distributed_c10d.Backend._plugins["PJRT"]
    if plugin.creator_fn is not _create:
        distributed_c10d.Backend._plugins["PJRT"] = plugin._replace(creator_fn=_create, extended_api=False)
        by_process.install()
        checkpoints.install()
        data_parallel.install()
        data_parallel.refuse_sparse_gradients()
        ragged.install()
        shards.install()
        replicas.install()
        draws.install()
        group_ranks.install()
        losses.install()
        objects.install()


def _gather_keys(attention: Any) -> None:
    from torch_pjrt.distributed import context

    context.install(attention)


def install() -> None:
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    inner, make_group = distributed_c10d.init_process_group, distributed_c10d._new_process_group_helper

    @functools.wraps(inner)
    def init_process_group(
        backend: Any = None,
        init_method: Any = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        is_first = not torch.distributed.is_initialized()
        if is_first and is_asked_for(backend, init_method, _launcher_size(world_size), rank, store):
            world_size, rank = _launcher_size(world_size), 0
            begin(world_size)
            store = torch.distributed.HashStore()
        elif is_first and size() > 1:
            raise RuntimeError(
                f"torch.distributed.init_process_group: this process has a world of {size()} ranks, whose tensors lie "
                f"on {size()} devices; call init_process_group('pjrt', rank=0, world_size={size()}), or start another "
                "process"
            )
        inner(backend, init_method, timeout, world_size, rank, store, *args, **kwargs)

    arguments = inspect.signature(make_group)

    @functools.wraps(make_group)
    def _new_process_group_helper(group_size: Any, group_rank: Any, ranks: Any, *args: Any, **kwargs: Any) -> Any:
        if size() > 1 and _groups:
            given = arguments.bind(group_size, group_rank, ranks, *args, **kwargs).arguments
            _check_backend(str(given["backend"]), given["group_size"])
            _creating.clear()
            if ranks:
                _groups[-1].ask(tuple(ranks))
                _creating.append(tuple(ranks))
        return make_group(group_size, group_rank, ranks, *args, **kwargs)

    after_import("torch.distributed.tensor.experimental._context_parallel._attention", _gather_keys)
    distributed_c10d.init_process_group = torch.distributed.init_process_group = init_process_group
    distributed_c10d._new_process_group_helper = _new_process_group_helper
