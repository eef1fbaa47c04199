"""Every function of torch.distributed that communicates, each reduction and several dtypes: one list of cases, which
processes and a world run.

A case is a function of `Ranks` that returns tensors, whose values may differ between ranks. `only` leaves out a tensor
that a rank doesn't receive, such as the result of a reduce to another rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

SIZE = 4
ALL = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
SOME = ("SUM", "AVG", "MIN", "BXOR", "PREMUL_SUM")
REDUCTIONS = {torch.float32: ALL, torch.int64: ALL, torch.bool: SOME, torch.bfloat16: SOME, torch.complex64: SOME}
# Cases that the device supports and gloo refuses: a sum with a factor, and complex dtypes.
ALSO = ("PREMUL_SUM", "gather torch.complex64", "functional_exchange torch.complex64")
# Cases that a world refuses: those that name single ranks, and objects that would differ between ranks.
NOT_IN_A_WORLD = ("to_next_and_previous", "send_and_recv", "scatter_object_list", "send_object_list")


class Ranks:
    """The environment of a case: its device, its group and each rank's values."""

    def __init__(self, device: str, group: Any, of_rank: Callable[[Callable[[int], Any]], Any]) -> None:
        """``of_rank`` returns a function's result for this rank's number; in a world, the results of all ranks in
        one."""
        self.device, self.group, self._of_rank = device, group, of_rank

    def make(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        def values(rank: int) -> torch.Tensor:
            drawn = torch.Generator().manual_seed(rank)
            return torch.randint(0, 4, shape, generator=drawn).to(dtype)

        made: torch.Tensor = self._of_rank(values).to(self.device)
        return made

    def only(self, root: int, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the root's tensor, and zeros on other ranks."""
        return tensor * self._of_rank(lambda rank: torch.tensor(int(rank == root))).to(tensor.device, tensor.dtype)


Case = Callable[[Ranks], list[torch.Tensor]]


def reduction(name: str) -> Any:
    return dist._make_nccl_premul_sum(0.5) if name == "PREMUL_SUM" else getattr(dist.ReduceOp, name)


def reductions(name: str, dtype: torch.dtype) -> Iterator[tuple[str, Case]]:
    op = reduction(name)

    def all_reduce(ranks: Ranks) -> list[torch.Tensor]:
        x = ranks.make(dtype, 4, 3)
        dist.all_reduce(x, op, ranks.group)
        return [x]

    def all_reduce_coalesced(ranks: Ranks) -> list[torch.Tensor]:
        tensors = [ranks.make(dtype, 3), ranks.make(dtype, 2, 2)]
        dist.all_reduce_coalesced(tensors, op, ranks.group)
        return tensors

    def reduce(ranks: Ranks) -> list[torch.Tensor]:
        x = ranks.make(dtype, 5)
        dist.reduce(x, 1, op, ranks.group)
        return [ranks.only(1, x)]  # other ranks' values are undefined

    def reduce_scatter(ranks: Ranks) -> list[torch.Tensor]:
        out = ranks.make(dtype, 2, 3)
        dist.reduce_scatter(out, list(ranks.make(dtype, SIZE * 2, 3).chunk(SIZE)), op, ranks.group)
        return [out]

    def reduce_scatter_tensor(ranks: Ranks) -> list[torch.Tensor]:
        out = ranks.make(dtype, 2, 3)
        dist.reduce_scatter_tensor(out, ranks.make(dtype, SIZE * 2, 3), op, ranks.group)
        return [out]

    def functional_all_reduce(ranks: Ranks) -> list[torch.Tensor]:
        return [functional.all_reduce(ranks.make(dtype, 3), name.lower(), ranks.group) + 0]

    def functional_reduce_scatter(ranks: Ranks) -> list[torch.Tensor]:
        return [functional.reduce_scatter_tensor(ranks.make(dtype, SIZE, 2), name.lower(), 0, ranks.group) + 0]

    cases = [all_reduce, reduce_scatter_tensor]
    if dtype in (torch.float32, torch.complex64):
        cases += [all_reduce_coalesced, reduce, reduce_scatter]
    if name != "PREMUL_SUM" and not (dtype.is_complex and name in ("MIN", "MAX")):  # gloo's functional ones order them
        cases += [functional_all_reduce, functional_reduce_scatter]
    for case in cases:
        yield case.__name__, case


def moves(dtype: torch.dtype) -> Iterator[tuple[str, Case]]:
    def broadcast(ranks: Ranks) -> list[torch.Tensor]:
        x = ranks.make(dtype, 4)
        dist.broadcast(x, 2, ranks.group)
        return [x]

    def all_gather(ranks: Ranks) -> list[torch.Tensor]:
        out = [ranks.make(dtype, 2, 3) for _ in range(SIZE)]
        dist.all_gather(out, ranks.make(dtype, 2, 3), ranks.group)
        return out

    def all_gather_into_tensor(ranks: Ranks) -> list[torch.Tensor]:
        out = ranks.make(dtype, SIZE * 2, 3)
        dist.all_gather_into_tensor(out, ranks.make(dtype, 2, 3), ranks.group)
        return [out]

    def gather(ranks: Ranks) -> list[torch.Tensor]:
        out = [ranks.make(dtype, 3) for _ in range(SIZE)]
        dist.gather(ranks.make(dtype, 3), out if dist.get_rank() == 0 else None, 0, ranks.group)
        return [ranks.only(0, each) for each in out]

    def scatter(ranks: Ranks) -> list[torch.Tensor]:
        out = ranks.make(dtype, 3)
        parts = list(ranks.make(dtype, SIZE, 3).unbind())
        dist.scatter(out, parts if dist.get_rank() == 0 else None, 0, ranks.group)
        return [out]

    def all_to_all(ranks: Ranks) -> list[torch.Tensor]:
        out = [ranks.make(dtype, 2) for _ in range(SIZE)]
        dist.all_to_all(out, list(ranks.make(dtype, SIZE, 2).unbind()), ranks.group)
        return out

    def all_to_all_single(ranks: Ranks) -> list[torch.Tensor]:
        out = ranks.make(dtype, SIZE * 2)
        dist.all_to_all_single(out, ranks.make(dtype, SIZE * 2), group=ranks.group)
        return [out]

    def to_next_and_previous(ranks: Ranks) -> list[torch.Tensor]:
        rank = dist.get_rank(ranks.group)
        out = ranks.make(dtype, 3)
        there, back = (rank + 1) % SIZE, (rank - 1) % SIZE
        sent = dist.P2POp(dist.isend, ranks.make(dtype, 3), there, ranks.group)
        got = dist.P2POp(dist.irecv, out, back, ranks.group)
        for work in dist.batch_isend_irecv([sent, got]):
            work.wait()
        return [out]

    def send_and_recv(ranks: Ranks) -> list[torch.Tensor]:
        out, rank = ranks.make(dtype, 3), dist.get_rank()
        if rank == 0:
            dist.send(out, 1, ranks.group)
        elif rank == 1:
            dist.recv(out, 0, ranks.group)
        return [out]

    def functional_gather(ranks: Ranks) -> list[torch.Tensor]:
        return [functional.all_gather_tensor(ranks.make(dtype, 2, 2), 1, ranks.group) + 0]

    def functional_broadcast(ranks: Ranks) -> list[torch.Tensor]:
        return [functional.broadcast(ranks.make(dtype, 2), 1, ranks.group) + 0]

    def functional_exchange(ranks: Ranks) -> list[torch.Tensor]:
        return [functional.all_to_all_single(ranks.make(dtype, SIZE, 2), None, None, ranks.group) + 0]

    for case in (
        broadcast, all_gather, all_gather_into_tensor, gather, scatter, all_to_all, all_to_all_single,
        to_next_and_previous, send_and_recv, functional_gather, functional_broadcast, functional_exchange,
    ):  # fmt: skip
        yield case.__name__, case


def groups() -> Iterator[tuple[str, Case]]:
    """Yields cases for each way to make groups: the results of an all_reduce in them."""

    def summed(ranks: Ranks, group: Any) -> list[torch.Tensor]:
        x = ranks.make(torch.float32, 3)
        dist.all_reduce(x, group=group)
        place = ranks.make(torch.int64, 1) * 0 + dist.get_rank(group)
        return [x, place]

    def new_group(ranks: Ranks) -> list[torch.Tensor]:
        mine = None
        for members in ([0, 2], [1, 3]):
            made = dist.new_group(members)
            if mine is None and made != dist.GroupMember.NON_GROUP_MEMBER:
                mine = made
        return summed(ranks, mine)

    def new_subgroups(ranks: Ranks) -> list[torch.Tensor]:
        return summed(ranks, dist.new_subgroups(2)[0])

    def new_subgroups_by_enumeration(ranks: Ranks) -> list[torch.Tensor]:
        return summed(ranks, dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])[0])

    def split_group(ranks: Ranks) -> list[torch.Tensor]:
        return summed(ranks, dist.split_group(split_ranks=[[0, 1], [2, 3]]))

    for case in (new_group, new_subgroups, new_subgroups_by_enumeration, split_group):
        yield case.__name__, case


def objects() -> Iterator[tuple[str, Case]]:
    def all_gather_object(ranks: Ranks) -> list[torch.Tensor]:
        out: list[Any] = [None] * SIZE
        dist.all_gather_object(out, {"step": 3}, ranks.group)
        return [torch.tensor([each["step"] for each in out])]

    def broadcast_object_list(ranks: Ranks) -> list[torch.Tensor]:
        out = [{"step": 3}, "all"]
        dist.broadcast_object_list(out, 0, ranks.group)
        return [torch.tensor(out[0]["step"])]  # type: ignore[index]

    def gather_object(ranks: Ranks) -> list[torch.Tensor]:
        out: list[Any] | None = [None] * SIZE if dist.get_rank() == 0 else None
        dist.gather_object(3, out, 0, ranks.group)
        return []

    def scatter_object_list(ranks: Ranks) -> list[torch.Tensor]:
        out: list[Any] = [None]
        dist.scatter_object_list(out, list(range(SIZE)) if dist.get_rank() == 0 else None, 0, ranks.group)
        return [torch.tensor(out)]

    def send_object_list(ranks: Ranks) -> list[torch.Tensor]:
        if dist.get_rank() == 0:
            dist.send_object_list([3], 1, ranks.group)
        elif dist.get_rank() == 1:
            dist.recv_object_list([None], 0, ranks.group)
        return []

    def barrier(ranks: Ranks) -> list[torch.Tensor]:
        dist.barrier(ranks.group)
        return []

    def monitored_barrier(ranks: Ranks) -> list[torch.Tensor]:
        dist.monitored_barrier(ranks.group)
        return []

    for case in (
        all_gather_object, broadcast_object_list, gather_object, scatter_object_list, send_object_list, barrier,
        monitored_barrier,
    ):  # fmt: skip
        yield case.__name__, case


def table() -> Iterator[tuple[str, Case]]:
    for dtype, names in REDUCTIONS.items():
        for name in names:
            for case, run in reductions(name, dtype):
                yield f"{case} {name} {dtype}", run
    for dtype in (torch.float32, torch.bool, torch.complex64):
        for case, run in moves(dtype):
            yield f"{case} {dtype}", run
    yield from groups()
    yield from objects()


def attempt(case: Case, ranks: Ranks) -> list[torch.Tensor] | str:
    """Returns the case's results, or the error that it raises."""
    try:
        return case(ranks)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
