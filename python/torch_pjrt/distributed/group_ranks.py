"""The rank of this process in a group: ``get_rank(group)``, ``group.rank()``, and the ranks of a group.

The one process of a world is rank 0, and PyTorch answers for rank 0. Code that computes with the answer would do the
work of rank 0 on all ranks, so it gets each rank's own number (``PerRank``, or ``GlobalRank`` without a group).
PyTorch's own functions, which ask which process prints, writes or sends, get 0.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch_pjrt import _C
from torch_pjrt.distributed.objects import has_world
from torch_pjrt.distributed.rank import GlobalRank, PerRank, per_rank

_NAME_RANKS = ("torch.", "torch_pjrt.")
_COMPUTE = (  # exceptions to _NAME_RANKS
    "torch.distributed.nn.",
    "torch.distributed.algorithms.ddp_comm_hooks.",
    "torch.utils.data.",
)
_TRACES = "torch._dynamo.variables."  # calls on behalf of the compiled function


def _module(frame: FrameType) -> str:
    """Returns the name of the module whose code runs in the frame."""
    name: str = frame.f_globals.get("__name__", "")
    return name


def _names_ranks(module: str) -> bool:
    """Whether it is a module of PyTorch that asks which process prints, writes or sends."""
    return module.startswith(_NAME_RANKS) and not module.startswith((*_COMPUTE, _TRACES))


def _groups(group: Any) -> list[tuple[int, ...]]:
    """Returns for each rank the ranks of its group."""
    ranks, size = _C.groups_of(group)
    found: list[tuple[int, ...]] = [()] * len(ranks)
    for first in range(0, len(ranks), size):
        own = tuple(ranks[first : first + size])
        for rank in own:
            found[rank] = own
    return found


def places(group: Any) -> Any:
    """Returns each rank's number in its group."""
    return per_rank(own.index(rank) for rank, own in enumerate(_groups(group)))


def _trace(*kinds: type) -> None:
    """Lets Dynamo trace operators of a rank as methods of an object."""
    from torch._dynamo.source import GlobalSource
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.builder import SourcelessBuilder

    def of_world(tx: Any, value: Any) -> Any:
        name = tx.output.install_global_by_id("rank", value)
        return VariableTracker.build(tx, value, source=GlobalSource(name))

    SourcelessBuilder._type_handlers.update(dict.fromkeys(kinds, of_world))


def install() -> None:
    """Installs the patches; called once a world has begun."""
    import torch
    from torch.distributed import GroupMember, ProcessGroup, distributed_c10d
    from torch.distributed.device_mesh import DeviceMesh

    rank_of, ranks_of = ProcessGroup.rank, distributed_c10d.get_process_group_ranks
    to_group, to_global = distributed_c10d.get_group_rank, distributed_c10d.get_global_rank
    passes_on = (distributed_c10d.get_rank.__code__, DeviceMesh.get_rank.__code__)

    def is_of_ranks(group: Any) -> bool:
        return group is not None and group != GroupMember.NON_GROUP_MEMBER and has_world(group)

    def rank(self: Any) -> Any:
        """``get_rank``, which programs may have imported before there was a world, asks this method."""
        frame = sys._getframe(1)
        is_named = frame.f_code is not passes_on[0] or frame.f_locals["group"] is not None
        while frame.f_code in passes_on and frame.f_back is not None:
            frame = frame.f_back
        module = _module(frame)
        if not is_of_ranks(self) or _names_ranks(module):
            return rank_of(self)
        own = places(self)
        return own if is_named or module.startswith(_COMPUTE) else GlobalRank(own.values)

    @functools.wraps(ranks_of)
    def get_process_group_ranks(group: Any) -> list[Any]:
        if not is_of_ranks(group) or _names_ranks(_module(sys._getframe(1))):
            return list(ranks_of(group))
        return [per_rank(of_place) for of_place in zip(*_groups(group), strict=True)]

    def each(function: Callable[..., int], group: Any, given: Any) -> Any:
        given = given.values if isinstance(given, PerRank) else [given] * _C.world_size()
        return per_rank(function(own, one) for own, one in zip(_groups(group), given, strict=True))

    @functools.wraps(to_global)
    def get_global_rank(group: Any, group_rank: Any) -> Any:
        if not isinstance(group_rank, PerRank) and (not is_of_ranks(group) or _names_ranks(_module(sys._getframe(1)))):
            return to_global(group, group_rank)
        return each(lambda own, one: own[one], group, group_rank)

    @functools.wraps(to_group)
    def get_group_rank(group: Any, global_rank: Any) -> Any:
        if not isinstance(global_rank, PerRank):
            return to_group(group, global_rank)
        if not is_of_ranks(group):
            return rank_of(group)
        return each(lambda own, one: own.index(one), group, global_rank)

    def refuses_ranks(name: str) -> Callable[..., Any]:
        inner = getattr(ProcessGroup, name)

        @functools.wraps(inner)
        def between_two(self: Any, tensors: Any, peer: Any, tag: int) -> Any:
            return inner(self, tensors, 0 if isinstance(peer, PerRank) else peer, tag)  # the backend refuses the call

        return between_two

    def refuses_sizes(inner: Callable[..., Any]) -> Callable[..., Any]:
        """PyTorch's bindings take no PerRank for an int, and say so of all arguments."""

        @functools.wraps(inner)
        def exchange(*given: Any, **named: Any) -> Any:
            for sizes in (*given, *named.values()):
                if isinstance(sizes, (list, tuple)) and any(isinstance(one, PerRank) for one in sizes):
                    of_ranks = [
                        [one.values[rank] if isinstance(one, PerRank) else one for one in sizes]
                        for rank in range(_C.world_size())
                    ]
                    raise NotImplementedError(
                        f"all_to_all_single: ranks with parts of their own sizes, {of_ranks}: tensors of a world have "
                        "one shape on all ranks. Pad the parts to one size, or start a process for each rank with "
                        "torchrun"
                    )
            return inner(*given, **named)

        return exchange

    from torch.distributed import _functional_collectives as functional

    _trace(PerRank, GlobalRank)
    for name in ("alltoall_base", "all_to_all_single"):
        setattr(ProcessGroup, name, refuses_sizes(getattr(ProcessGroup, name)))
    functional.all_to_all_single = refuses_sizes(functional.all_to_all_single)
    ProcessGroup.rank = rank
    ProcessGroup.send, ProcessGroup.recv = refuses_ranks("send"), refuses_ranks("recv")
    for function in (get_process_group_ranks, get_global_rank, get_group_rank):
        setattr(distributed_c10d, function.__name__, function)
        setattr(torch.distributed, function.__name__, function)
