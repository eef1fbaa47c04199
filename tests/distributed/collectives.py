"""Run by each of several processes: collectives of the device compared with gloo's on the CPU, and the properties of
groups. Prints a JSON of the counters."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import torch_pjrt

GLOOS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8, torch.uint8)
BY_BITS = (torch.int16, torch.uint16, torch.float8_e4m3fn, torch.complex128)
Ours = Callable[[Callable[..., torch.Tensor]], Any]  # takes a function that makes tensors of one dtype and device


def reductions(rank: int, size: int) -> Iterator[tuple[str, Ours]]:
    group = dist.group.WORLD

    def reduced(op: Any) -> Ours:
        def run(make: Callable[..., torch.Tensor]) -> torch.Tensor:
            x = make(3, 5)
            dist.all_reduce(x, op)
            return x

        return run

    def transposed(make: Callable[..., torch.Tensor]) -> torch.Tensor:
        x = make(6, 4).t()[1:]  # neither contiguous nor all of its memory, which gloo takes for contiguous
        x = x.contiguous() if x.device.type == "cpu" else x
        dist.all_reduce(x)
        return x

    def scattered(make: Callable[..., torch.Tensor]) -> torch.Tensor:
        out = make(2, 3) * 0
        dist.reduce_scatter_tensor(out, make(2 * size, 3))
        return out

    def to_one(make: Callable[..., torch.Tensor]) -> torch.Tensor:
        x = make(4)
        dist.reduce(x, dst=size - 1)
        return x if rank == size - 1 else x[:0]  # the values of other ranks are undefined

    for name in ("SUM", "PRODUCT", "MIN", "MAX"):
        yield name, reduced(getattr(dist.ReduceOp, name))
    yield "of a view", transposed
    yield "reduce_scatter_tensor", scattered
    yield "reduce", to_one
    yield "functional all_reduce", lambda make: functional.all_reduce(make(3), "sum", group) + 1
    yield "functional reduce_scatter", lambda make: functional.reduce_scatter_tensor(make(2 * size, 2), "sum", 0, group)
    yield (
        "functional all_reduce_coalesced",
        lambda make: [x + 0 for x in functional.all_reduce_coalesced([make(2), make(3, 1)], "sum", group)],
    )


def moves(rank: int, size: int) -> Iterator[tuple[str, Ours]]:
    group = dist.group.WORLD

    def gathered(make: Callable[..., torch.Tensor]) -> torch.Tensor:
        out = make(2 * size, 3)
        dist.all_gather_into_tensor(out, make(2, 3))
        return out

    def gathered_flat(make: Callable[..., torch.Tensor]) -> torch.Tensor:
        """Sizes differ from gloo's; the memory must be equal, as SyncBatchNorm needs."""
        x = make(3)
        if x.device.type == "cpu":
            out = x.new_empty(3 * size, *x.shape[1:])
            dist.all_gather_into_tensor(out, x)
            return out
        out = x.new_empty(1, 3 * size)
        dist.all_gather_into_tensor(out, x)
        return out

    def gathered_list(make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        out = [make(2, 1, 2) for _ in range(size)]
        dist.all_gather(out, make(2, 1, 2))
        return out

    def broadcast(make: Callable[..., torch.Tensor]) -> torch.Tensor:
        x = make(4, 2)
        dist.broadcast(x, src=size - 1)
        return x

    def exchanged(make: Callable[..., torch.Tensor]) -> torch.Tensor:
        sent = [1 + (rank + other) % 2 for other in range(size)]  # as many as the other sends here
        out = make(sum(sent), 2)
        dist.all_to_all_single(out, make(sum(sent), 2), sent, sent)
        return out

    def scattered(make: Callable[..., torch.Tensor]) -> torch.Tensor:
        out = make(3)
        dist.scatter(out, [make(3) for _ in range(size)] if rank == 0 else None, src=0)
        return out

    def to_one(make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        out = [make(2) for _ in range(size)]
        dist.gather(make(2), out if rank == 0 else None, dst=0)
        return out if rank == 0 else []

    def around(make: Callable[..., torch.Tensor]) -> torch.Tensor:
        sent, received = make(3, 2), make(3, 2)
        ops = [
            dist.P2POp(dist.isend, sent, (rank + 1) % size),
            dist.P2POp(dist.irecv, received, (rank - 1) % size),
        ]
        works = dist.batch_isend_irecv(ops)
        if sent.device.type == "pjrt":
            sent.zero_()  # must not change what was sent
        for work in works:
            work.wait()
        return received

    yield "all_gather_into_tensor", gathered
    yield "all_gather_into_tensor of other sizes", gathered_flat
    yield "all_gather", gathered_list
    yield "broadcast", broadcast
    yield "all_to_all_single", exchanged
    yield "scatter", scattered
    yield "gather", to_one
    yield "send and recv", around
    yield "functional all_gather", lambda make: functional.all_gather_tensor(make(2, 3), 1, group) + 0


def values(rank: int, dtype: torch.dtype, device: str) -> Callable[..., torch.Tensor]:
    drawn = torch.Generator().manual_seed(rank)

    def make(*shape: int) -> torch.Tensor:
        x = torch.randint(-3 if dtype.is_signed else 0, 4, shape, generator=drawn)
        return x.to(dtype).to(device)

    return make


def bits(tensors: Any) -> list[torch.Tensor]:
    listed = tensors if isinstance(tensors, list) else [tensors]
    return [t.cpu().contiguous().view(torch.uint8) for t in listed]


def compare(cases: Iterator[tuple[str, Ours]], dtype: torch.dtype, theirs: torch.dtype, rank: int, device: str) -> None:
    """Compares with gloo on the CPU. Dtypes that gloo lacks are compared by the bits of one that it has."""
    for name, run in cases:
        found = bits(run(values(rank, dtype, device)))
        if theirs is dtype:
            wanted = bits(run(values(rank, dtype, "cpu")))
        else:
            make = values(rank, dtype, "cpu")
            wanted = bits(run(lambda *shape, make=make: make(*shape).unsqueeze(-1).view(theirs)))
        assert len(found) == len(wanted), name
        for ours, other in zip(found, wanted, strict=True):
            assert torch.equal(ours.flatten(), other.flatten()), (name, dtype, ours, other)


def main(how: str, dtypes: tuple[torch.dtype, ...], by_bits: tuple[torch.dtype, ...]) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("pjrt", rank)
    limit = timedelta(seconds=60)
    if how == "none":
        dist.init_process_group(timeout=limit)
    elif how == "device":
        dist.init_process_group(device_id=device, timeout=limit)
    else:
        dist.init_process_group(how, timeout=limit)
    torch.pjrt.set_device(device)
    group = dist.group.WORLD
    assert {torch.device("cpu"), torch.device("pjrt")} <= set(group._device_types)
    reported: list[Any] = [None] * size
    dist.all_gather_object(reported, {"rank": rank})
    assert reported == [{"rank": each} for each in range(size)]
    dist.barrier()
    for dtype in dtypes:
        compare(reductions(rank, size), dtype, dtype, rank, str(device))
        compare(moves(rank, size), dtype, dtype, rank, str(device))
    for dtype in by_bits:
        compare(moves(rank, size), dtype, torch.uint8, rank, str(device))
    for ranks in ([0, 1], list(range(size))):
        part = dist.new_group(ranks, timeout=limit)
        if rank in ranks:
            x, y = torch.ones(2, device=device), torch.ones(2)
            name = "all_reduce" if torch_pjrt._C.platform_name() == "cuda" else "c10d::allreduce_"
            before = torch_pjrt.metrics()["collective_bytes"].get(name, 0)
            dist.all_reduce(x, group=part)
            assert torch_pjrt.metrics()["collective_bytes"][name] == before + x.nbytes
            dist.all_reduce(y, group=part)
            assert x.tolist() == y.tolist() == [len(ranks)] * 2
    metrics = torch_pjrt.metrics()
    reports_of = {"backend": dist.get_backend(), "counted": metrics["host_fallbacks"], "across": metrics["collectives"]}
    print(json.dumps(reports_of))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    way, all_dtypes = sys.argv[1], sys.argv[1] == "pjrt" and "few" not in sys.argv
    main(way, GLOOS if all_dtypes else GLOOS[:1], BY_BITS if all_dtypes else BY_BITS[:1] if way == "pjrt" else ())
