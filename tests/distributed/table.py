"""Every function of torch.distributed that communicates, each reduction and several dtypes: one list of cases, which
processes and a world run.

A case is a function of `Ranks` that returns tensors, whose values may differ between ranks. `only` leaves out a tensor
that a rank doesn't receive, such as the result of a reduce to another rank.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
import torch.distributed.tensor as dtensors

SIZE = int(os.environ.get("WORLD_SIZE", "4"))
ALL = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
SOME = ("SUM", "AVG", "MIN", "BXOR", "PREMUL_SUM")
REDUCTIONS = {torch.float32: ALL, torch.int64: ALL, torch.bool: SOME, torch.bfloat16: SOME, torch.complex64: SOME}
# Cases that the device supports and gloo refuses: a sum with a factor, complex dtypes, and a gradient.
ALSO = (
    "nn._all_gather_base", "gather_single", "to_itself",
    "PREMUL_SUM", "gather torch.complex64", "functional_exchange torch.complex64",
    "functional_coalesced torch.complex64", "functional_singles torch.complex64", "permute_tensor torch.complex64",
)  # fmt: skip
# Cases that a world refuses: those that name single ranks, and objects that would differ between ranks.
NOT_IN_A_WORLD = (
    "to_next_and_previous", "to_itself", "from_itself", "send_and_recv", "isend_and_irecv", "parts_of_other_sizes",
    "permute_tensor", "scatter_object_list", "send_object_list",
)  # fmt: skip
# Functions of torch.distributed that communicate nothing, or begin and end all communication.
LOCAL = {
    "breakpoint", "get_backend_config", "get_default_backend_for_device", "get_node_local_rank", "get_pg_count",
    "init_process_group", "is_available", "is_backend_available", "is_gloo_available", "is_initialized",
    "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "is_xccl_available",
    "register_rendezvous_handler", "rendezvous", "supports_complex", "wait_tensor",
    "allow_inflight_collective_as_graph_input_ctx",
}  # fmt: skip


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

    def reduce_scatter_single(ranks: Ranks) -> list[torch.Tensor]:
        out = ranks.make(dtype, 2, 3)
        with dist.record_comm("named"):
            work = dist.reduce_scatter_single(out, ranks.make(dtype, SIZE * 2, 3), op, ranks.group, async_op=True)
        work.wait(timedelta(seconds=60))
        return [out]

    def functional_all_reduce(ranks: Ranks) -> list[torch.Tensor]:
        return [functional.all_reduce(ranks.make(dtype, 3), name.lower(), ranks.group) + 0]

    def functional_reduce_scatter(ranks: Ranks) -> list[torch.Tensor]:
        return [functional.reduce_scatter_tensor(ranks.make(dtype, SIZE, 2), name.lower(), 0, ranks.group) + 0]

    cases = [all_reduce, reduce_scatter_tensor]
    if dtype in (torch.float32, torch.complex64):
        cases += [all_reduce_coalesced, reduce, reduce_scatter, reduce_scatter_single]
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

    def all_gather_single(ranks: Ranks) -> list[torch.Tensor]:
        out = ranks.make(dtype, SIZE * 2, 3)
        work = dist.all_gather_single(out, ranks.make(dtype, 2, 3), ranks.group, async_op=True)
        work.wait(timedelta(seconds=60))
        return [out]

    def all_gather_coalesced(ranks: Ranks) -> list[torch.Tensor]:
        out = [[ranks.make(dtype, 2), ranks.make(dtype, 3, 1)] for _ in range(SIZE)]
        dist.all_gather_coalesced(out, [ranks.make(dtype, 2), ranks.make(dtype, 3, 1)], ranks.group)
        return [tensor for each in out for tensor in each]

    def gather(ranks: Ranks) -> list[torch.Tensor]:
        out = [ranks.make(dtype, 3) for _ in range(SIZE)]
        dist.gather(ranks.make(dtype, 3), out if dist.get_rank() == 0 else None, 0, ranks.group)
        return [ranks.only(0, each) for each in out]

    def gather_single(ranks: Ranks) -> list[torch.Tensor]:
        out = ranks.make(dtype, SIZE, 3)  # or one after another
        dist.gather_single(ranks.make(dtype, 3), out if dist.get_rank() == 0 else None, 0, ranks.group)
        flat = ranks.make(dtype, SIZE * 3)
        to = flat if dist.get_rank() == 0 else None
        work = dist.gather_into_tensor(ranks.make(dtype, 3), to, 0, ranks.group, async_op=True)
        work.wait()
        return [ranks.only(0, out), ranks.only(0, flat)]

    def gather_single_of_other_sizes(ranks: Ranks) -> list[torch.Tensor]:
        out = ranks.make(dtype, SIZE * 3 + 1)
        dist.gather_single(ranks.make(dtype, 3), out if dist.get_rank() == 0 else None, 0, ranks.group)
        return [out]

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

    def parts_of_other_sizes(ranks: Ranks) -> list[torch.Tensor]:
        rank = dist.get_rank(ranks.group)
        sent = [int(1 + (rank + other) % 2) for other in range(SIZE)]  # as many as the other sends here
        out = ranks.make(dtype, sum(sent), 2)
        dist.all_to_all_single(out, ranks.make(dtype, sum(sent), 2), sent, sent, ranks.group)
        return [out]

    def isend_and_irecv(ranks: Ranks) -> list[torch.Tensor]:
        out, rank = ranks.make(dtype, 3), dist.get_rank()
        if rank == SIZE - 2:
            dist.isend(out, SIZE - 1, ranks.group).wait()
        elif rank == SIZE - 1:
            dist.irecv(out, SIZE - 2, ranks.group).wait()
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

    def to_itself(ranks: Ranks) -> list[torch.Tensor]:
        rank, out = dist.get_rank(ranks.group), [ranks.make(dtype, 3) * 0, ranks.make(dtype, 2, 2) * 0]
        ops = [dist.P2POp(dist.irecv, x, rank, ranks.group) for x in out]
        ops += [dist.P2POp(dist.isend, ranks.make(dtype, *x.shape), rank, ranks.group) for x in out]
        for work in reversed(dist.batch_isend_irecv(ops)):
            work.wait()
        return out

    def from_itself(ranks: Ranks) -> list[torch.Tensor]:
        dist.irecv(ranks.make(dtype, 3), dist.get_rank(ranks.group), ranks.group).wait()
        return []

    def send_and_recv(ranks: Ranks) -> list[torch.Tensor]:
        out, rank = ranks.make(dtype, 3), dist.get_rank()
        if rank == 0:
            dist.send(out, 1, ranks.group)
        elif rank == 1:
            dist.recv(out, 0, ranks.group)
        return [out]

    def functional_gather(ranks: Ranks) -> list[torch.Tensor]:
        return [functional.all_gather_tensor(ranks.make(dtype, 2, 2), 1, ranks.group) + 0]

    def functional_coalesced(ranks: Ranks) -> list[torch.Tensor]:
        tensors = [ranks.make(dtype, SIZE), ranks.make(dtype, SIZE, 2)]
        return [
            each + 0
            for found in (
                functional.all_reduce_coalesced(tensors, "sum", ranks.group),
                functional.all_gather_into_tensor_coalesced(tensors, ranks.group),
                functional.all_gather_single_coalesced(tensors, ranks.group),
                functional.reduce_scatter_tensor_coalesced(tensors, "sum", [0, 0], ranks.group),
                functional.reduce_scatter_single_coalesced(tensors, "sum", [0, 0], ranks.group),
            )
            for each in found
        ]

    def functional_singles(ranks: Ranks) -> list[torch.Tensor]:
        x = ranks.make(dtype, SIZE, 2)
        return [
            functional.all_gather_single(x, 0, ranks.group) + 0,
            functional.reduce_scatter_single(x, "sum", 0, ranks.group) + 0,
        ]

    def wait_tensors(ranks: Ranks) -> list[torch.Tensor]:
        x = [ranks.make(dtype, 3).requires_grad_(dtype == torch.float32), ranks.make(dtype, SIZE, 2)]
        found = functional.wait_tensors([functional.all_gather_tensor(each, 0, ranks.group) for each in x])
        return [each.detach() + 0 for each in found]

    def permute_tensor(ranks: Ranks) -> list[torch.Tensor]:
        return [functional.permute_tensor(ranks.make(dtype, 3), [*range(1, SIZE), 0], ranks.group) + 0]

    def functional_broadcast(ranks: Ranks) -> list[torch.Tensor]:
        return [functional.broadcast(ranks.make(dtype, 2), 1, ranks.group) + 0]

    def functional_exchange(ranks: Ranks) -> list[torch.Tensor]:
        return [functional.all_to_all_single(ranks.make(dtype, SIZE, 2), None, None, ranks.group) + 0]

    for case in (
        broadcast, all_gather, all_gather_into_tensor, all_gather_single, all_gather_coalesced, gather, scatter,
        all_to_all, all_to_all_single, parts_of_other_sizes, to_next_and_previous, send_and_recv, isend_and_irecv,
        to_itself, from_itself, functional_gather, functional_broadcast, functional_exchange, functional_coalesced,
        functional_singles,
        permute_tensor,
    ):  # fmt: skip
        yield case.__name__, case
    if hasattr(dist, "gather_single"):  # since torch 2.15
        for case in (gather_single, gather_single_of_other_sizes, wait_tensors):
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

    def init_device_mesh(ranks: Ranks) -> list[torch.Tensor]:
        mesh = dist.init_device_mesh(ranks.device, (2, SIZE // 2))
        return summed(ranks, mesh.get_group(0))

    def shrink_group(ranks: Ranks) -> list[torch.Tensor]:
        return summed(ranks, dist.shrink_group([SIZE - 1], ranks.group))

    def destroy_process_group(ranks: Ranks) -> list[torch.Tensor]:
        group = dist.new_group(list(range(SIZE)))
        found = summed(ranks, group)
        dist.barrier(ranks.group)  # gloo's ranks have connected
        dist.destroy_process_group(group)
        return found

    def ranks_of_groups(ranks: Ranks) -> list[torch.Tensor]:
        members = dist.get_process_group_ranks(ranks.group)
        there = [dist.get_group_rank(ranks.group, rank) for rank in members]
        back = [dist.get_global_rank(ranks.group, rank) for rank in there]
        known = dist.get_backend(ranks.group) in ("gloo", "pjrt")
        return [torch.tensor([*there, *back, dist.get_world_size(ranks.group), known])]

    def set_timeout(ranks: Ranks) -> list[torch.Tensor]:
        group = dist.new_group(list(range(SIZE)), timeout=timedelta(seconds=60))
        dist.set_timeout(timedelta(seconds=50), group)
        return summed(ranks, group)

    def get_backend_impl(ranks: Ranks) -> list[torch.Tensor]:
        made = dist.get_backend_impl(ranks.group, torch.device(ranks.device))
        dist.get_backend_impl(ranks.group)
        return [torch.tensor([made.size(), made.name() in ("gloo", "pjrt")])]

    def spaced_shards(ranks: Ranks) -> list[torch.Tensor]:
        where = {"device_mesh": dist.init_device_mesh(ranks.device, (SIZE,)), "placements": [dtensors.Shard(0)]}
        made = [dtensors.linspace(3, 12, steps, **where) for steps in (1, 2 * SIZE, 10)]
        made += [dtensors.logspace(0, 9, 10, 2, dtype=torch.float64, **where)]
        return [each.full_tensor() for each in made]

    for case in (
        new_group, new_subgroups, new_subgroups_by_enumeration, split_group, init_device_mesh, shrink_group,
        destroy_process_group, ranks_of_groups,
    ):  # fmt: skip
        yield case.__name__, case
    if hasattr(dist, "set_timeout"):  # since torch 2.15
        yield "set_timeout", set_timeout
        yield "get_backend_impl", get_backend_impl
        yield "spaced_shards", spaced_shards


def gradients() -> Iterator[tuple[str, Case]]:
    def differentiable(name: str, call: Callable[[torch.Tensor, Any], torch.Tensor]) -> tuple[str, Case]:
        def run(ranks: Ranks) -> list[torch.Tensor]:
            x = ranks.make(torch.float32, SIZE, 2).requires_grad_()
            out = call(x, ranks.group)
            (out * out).sum().backward()
            return [out.detach() + 0, x.grad]  # type: ignore[list-item]

        return name, run

    yield differentiable("all_gather_tensor_autograd", lambda x, g: functional.all_gather_tensor_autograd(x, 0, g))
    yield differentiable("all_gather_single_autograd", lambda x, g: functional.all_gather_single_autograd(x, 0, g))
    yield differentiable(
        "reduce_scatter_tensor_autograd", lambda x, g: functional.reduce_scatter_tensor_autograd(x, "sum", 0, g)
    )
    yield differentiable(
        "reduce_scatter_single_autograd", lambda x, g: functional.reduce_scatter_single_autograd(x, "sum", 0, g)
    )
    yield differentiable(
        "all_to_all_single_autograd", lambda x, g: functional.all_to_all_single_autograd(x, None, None, g)
    )


def with_gradients() -> Iterator[tuple[str, Case]]:
    """Yields cases of torch.distributed.nn.functional: results and gradients. A rank weighs each of its results
    differently."""

    def case(call: Callable[[Ranks, torch.Tensor], Any], at: int | None = None) -> Case:
        def run(ranks: Ranks) -> list[torch.Tensor]:
            x = ranks.make(torch.float32, SIZE, 2).requires_grad_()
            out = call(ranks, x)
            found = [each * 1 for each in (out if isinstance(out, tuple) else (out,))]
            if at is not None:
                found = [ranks.only(at, each) for each in found]
            weights = [ranks.make(torch.float32, *each.shape) for each in found]
            sum((each * each * weight).sum() for each, weight in zip(found, weights, strict=True)).backward()
            return [*(each.detach() for each in found), x.grad]  # type: ignore[list-item]

        return run

    def parts(x: torch.Tensor) -> list[torch.Tensor]:
        return [part * 2 for part in x.unbind()]

    yield "nn.broadcast", case(lambda ranks, x: differentiable.broadcast(x, 2, ranks.group))
    yield "nn.gather", case(lambda ranks, x: differentiable.gather(x, 0, ranks.group))
    yield "nn.scatter", case(lambda ranks, x: differentiable.scatter(parts(x), 0, ranks.group))
    yield "nn.reduce", case(lambda ranks, x: differentiable.reduce(x, 1, group=ranks.group), at=1)
    yield "nn.all_reduce", case(lambda ranks, x: differentiable.all_reduce(x, group=ranks.group))
    yield "nn.all_gather", case(lambda ranks, x: differentiable.all_gather(x, ranks.group))
    yield (
        "nn.reduce_scatter",
        case(lambda ranks, x: differentiable.reduce_scatter(torch.empty_like(x[0]), parts(x), group=ranks.group)),
    )
    yield (
        "nn.all_to_all",
        case(lambda ranks, x: differentiable.all_to_all([torch.empty_like(x[0]) for _ in x], parts(x), ranks.group)),
    )
    yield (
        "nn.all_to_all_single",
        case(lambda ranks, x: differentiable.all_to_all_single(torch.empty_like(x), x, group=ranks.group)),
    )
    yield (
        "nn._all_gather_base",
        case(lambda ranks, x: differentiable._all_gather_base(x.new_empty(SIZE * SIZE, 2), x, ranks.group)),
    )


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
    yield from gradients()
    yield from with_gradients()
    yield from objects()


def attempt(case: Case, ranks: Ranks) -> list[torch.Tensor] | str:
    """Returns the case's results, or the error that it raises."""
    try:
        return case(ranks)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
