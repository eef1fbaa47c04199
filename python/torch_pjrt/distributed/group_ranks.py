"""The rank of this process in a group: ``get_rank(group)``, ``group.rank()``, and the ranks of a group.

The one process of a world is rank 0, and PyTorch answers for rank 0. Code that computes with the answer would do the
work of rank 0 on all ranks, so it gets each rank's own number (``PerRank``). ``get_rank()`` without a group is 0: it
identifies the process. PyTorch's own functions, which ask which process prints, writes or sends, get 0 as well.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch_pjrt import _C
from torch_pjrt.distributed.objects import has_world
from torch_pjrt.distributed.rank import PerRank, per_rank

_ASK_WHO = ("torch.distributed.", "torch.nn.parallel.")
_COMPUTE = ("torch.distributed.nn.", "torch.distributed.algorithms.ddp_comm_hooks.")  # exceptions to _ASK_WHO


def _caller() -> str:
    """Returns the module of the caller's caller."""
    name: str = sys._getframe(2).f_globals.get("__name__", "")
    return name


def _asks_who(module: str) -> bool:
    """Whether it is a module of PyTorch that asks which process prints, writes or sends."""
    return module.startswith(_ASK_WHO) and not module.startswith(_COMPUTE)


def _groups(group: Any) -> list[tuple[int, ...]]:
    """Returns for each rank the ranks of its group."""
    ranks, size = _C.groups_of(group)
    found: list[tuple[int, ...]] = [()] * len(ranks)
    for first in range(0, len(ranks), size):
        own = tuple(ranks[first : first + size])
        for rank in own:
            found[rank] = own
    return found


def _places(group: Any) -> Any:
    return per_rank(own.index(rank) for rank, own in enumerate(_groups(group)))


def install() -> None:
    """Installs the patches; called once a world has begun."""
    import torch
    from torch.distributed import GroupMember, ProcessGroup, distributed_c10d

    inner_rank, rank_of = distributed_c10d.get_rank, ProcessGroup.rank
    inner_ranks = distributed_c10d.get_process_group_ranks
    to_group, to_global = distributed_c10d.get_group_rank, distributed_c10d.get_global_rank

    def is_of_ranks(group: Any) -> bool:
        return group is not None and group != GroupMember.NON_GROUP_MEMBER and has_world(group)

    @functools.wraps(inner_rank)
    def get_rank(group: Any = None) -> Any:
        module = _caller()
        if group is None and module.startswith(_COMPUTE):
            group = GroupMember.WORLD
        return _places(group) if is_of_ranks(group) and not _asks_who(module) else inner_rank(group)

    def rank(self: Any) -> Any:
        return _places(self) if is_of_ranks(self) and not _asks_who(_caller()) else rank_of(self)

    @functools.wraps(inner_ranks)
    def get_process_group_ranks(group: Any) -> list[Any]:
        if not is_of_ranks(group) or _asks_who(_caller()):
            return list(inner_ranks(group))
        return [per_rank(of_place) for of_place in zip(*_groups(group), strict=True)]

    def each(function: Callable[..., int], group: Any, given: Any) -> Any:
        given = given.values if isinstance(given, PerRank) else [given] * _C.world_size()
        return per_rank(function(own, one) for own, one in zip(_groups(group), given, strict=True))

    @functools.wraps(to_global)
    def get_global_rank(group: Any, group_rank: Any) -> Any:
        if not isinstance(group_rank, PerRank) and (not is_of_ranks(group) or _asks_who(_caller())):
            return to_global(group, group_rank)
        return each(lambda own, one: own[one], group, group_rank)

    @functools.wraps(to_group)
    def get_group_rank(group: Any, global_rank: Any) -> Any:
        if not isinstance(global_rank, PerRank):
            return to_group(group, global_rank)
        return each(lambda own, one: own.index(one), group, global_rank)

    def refuses_ranks(name: str) -> Callable[..., Any]:
        inner = getattr(ProcessGroup, name)

        @functools.wraps(inner)
        def between_two(self: Any, tensors: Any, peer: Any, tag: int) -> Any:
            return inner(self, tensors, 0 if isinstance(peer, PerRank) else peer, tag)  # the backend refuses the call

        return between_two

    ProcessGroup.rank = rank
    ProcessGroup.send, ProcessGroup.recv = refuses_ranks("send"), refuses_ranks("recv")
    for function in (get_rank, get_process_group_ranks, get_global_rank, get_group_rank):
        setattr(distributed_c10d, function.__name__, function)
        setattr(torch.distributed, function.__name__, function)
