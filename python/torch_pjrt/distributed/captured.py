"""Ranks that are processes with one client (``src/device/process_group/backend.h``), in a captured step.

A captured step is one program of all processes, so a collective of a group in it is a collective of all groups of that
kind, as in a world in one process. PyTorch asks every process for every group, also for those that it is not part of.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.distributed.groups import Groups

_groups: list[Groups] = []  # for the current process group


@functools.cache
def _install_once() -> None:
    from torch_pjrt.distributed import data_parallel

    data_parallel.install()


def install() -> None:
    """Patches the creation of groups."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import GroupMember, distributed_c10d

    inner = distributed_c10d._new_process_group_helper

    @functools.wraps(inner)
    def _new_process_group_helper(group_size: Any, group_rank: Any, ranks: Any, *args: Any, **kwargs: Any) -> Any:
        made = inner(group_size, group_rank, ranks, *args, **kwargs)
        process = _C.process()
        if process is None or (ranks and not _groups):
            return made
        if not ranks:
            _groups[:] = [Groups(process[1], _C.complete_backend_of_processes)]
            _install_once()
        listed = tuple(ranks) or tuple(range(process[1]))
        _groups[-1].ask(listed)
        if made[0] is not GroupMember.NON_GROUP_MEMBER:
            backend = made[0]._get_backend(torch.device("pjrt"))
            backend = getattr(backend, "wrapped_pg", backend)  # wrapped if TORCH_DISTRIBUTED_DEBUG=DETAIL
            if backend.name() == "pjrt":  # other backends go through the host
                _groups[-1].add(listed, backend)
        return made

    distributed_c10d._new_process_group_helper = _new_process_group_helper
