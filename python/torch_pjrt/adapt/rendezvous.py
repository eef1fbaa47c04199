"""A barrier of ranks that are processes, before a group of them is made.

PyTorch's store and gloo wait for missing ranks in C++, for half an hour by default. Ctrl-C has no effect there, and no
message names the missing ranks. Ranks of this device's groups therefore wait for each other here, in Python, and
PyTorch then finds all of them.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch

from torch_pjrt.messages import warn

_is_ours = False  # True while init_process_group makes a store for this device's ranks


def takes_part(backend: Any) -> bool:
    """Returns whether a group of this backend, which takes the device's tensors, waits for its ranks here."""
    words = "undefined" if backend is None else str(backend).lower()
    return words == "undefined" or "pjrt" in words or "gloo" in words


def patience() -> float:
    """Returns the seconds after which the late ranks are reported; 0 means never."""
    return float(os.environ.get("TORCH_PJRT_COLLECTIVE_WARN_SECONDS") or 10)


def _wait(late: Callable[[], list[int]], of: Sequence[int], limit: float, what: str, cure: str) -> None:
    """Waits until ``late()`` is empty; raises DistStoreError after ``limit`` seconds."""
    start, pause, is_reported = time.monotonic(), 0.001, False
    while missing := late():
        waited = time.monotonic() - start
        if waited > limit:
            raise torch.distributed.DistStoreError(
                f"{what}: ranks {missing} of {list(of)} have not come within {limit:g} s. {cure}"
            )
        if not is_reported and 0 < patience() < waited:
            is_reported = True
            warn(
                "torch_pjrt.distributed", f"{what} has waited {waited:.2g} s: ranks {missing} of {list(of)} are missing"
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def join(store: Any, name: str, ranks: Sequence[int], rank: int, limit: float, call: str) -> tuple[dict[int, str], str]:
    """Waits for all of a group's ranks. Returns the hostname of each and a name that only this meeting has.

    A store may have entries of processes that have died, and of earlier groups. So the first rank writes a new name,
    the others repeat it, and the first then writes who has.

    Args:
        call: PyTorch's function that makes the group, for messages.

    Raises:
        torch.distributed.DistStoreError: some ranks have not arrived in time.
    """
    place = f"torch_pjrt/{name}"
    first, own, host = ranks[0], uuid.uuid4().hex, socket.gethostname()

    def written(key: Any) -> list[str]:
        return json.loads(store.get(f"{place}/{key}")) if store.check([f"{place}/{key}"]) else []

    def write(key: Any, *words: str) -> None:
        store.set(f"{place}/{key}", json.dumps(words))

    others = [other for other in ranks if other not in (first, rank)]
    meeting, missing = own, list(others)

    def late() -> list[int]:
        nonlocal meeting
        if rank != first:
            if own in written(meeting):  # the first may be in a later meeting by now
                return []
            found = written(first)
            if not found:
                return [first]
            if found[0] != meeting:
                meeting, missing[:] = found[0], others
                write(rank, meeting, own, host)
        missing[:] = [other for other in missing if written(other)[:1] != [meeting]]
        if rank == first and not missing:  # in the order of ranks: a name that the process has made, and its host
            write(own, *(word for other in ranks for word in written(other)[1:]))
            return []
        return missing or [first]

    if rank == first:
        write(first, own, own, host)
    _wait(
        late,
        ranks,
        limit,
        f"torch.distributed.{call}: rank {rank}",
        "All of them have to call it, and new_group in one order with the same ranks; see whether their processes run, "
        "and what they do. init_process_group(timeout=...) says how long they are waited for",
    )
    hosts = written(meeting)[1::2]
    return dict(zip(ranks, hosts, strict=True)), meeting


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _make_store(rendezvous: Any) -> Callable[..., Any]:
    inner: Callable[..., Any] = rendezvous._create_c10d_store

    @functools.wraps(inner)
    def _create_c10d_store(
        hostname: str, port: int, rank: int, world_size: int, timeout: timedelta, use_libuv: bool = True
    ) -> Any:
        if not _is_ours or rendezvous._torchelastic_use_agent_store():  # the launcher's store is already there
            return inner(hostname, port, rank, world_size, timeout, use_libuv)
        if rank != 0:
            _wait(
                lambda: [] if _answers(hostname, port) else [0],
                range(world_size),
                timeout.total_seconds(),
                f"torch.distributed.init_process_group: rank {rank}",
                f"Its store does not answer at MASTER_ADDR={hostname}, MASTER_PORT={port}: see whether the process of "
                "rank 0 runs there and has called it",
            )
        return torch.distributed.TCPStore(
            host_name=hostname,
            port=port,
            world_size=world_size,
            is_master=rank == 0,
            timeout=timeout,
            multi_tenant=True,
            use_libuv=use_libuv,
            wait_for_workers=False,  # `join` waits
        )

    return _create_c10d_store


def _init(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        global _is_ours
        before, _is_ours = _is_ours, takes_part(backend)
        try:
            inner(backend, *args, **kwargs)
        finally:
            _is_ours = before

    return init_process_group


def install() -> None:
    from torch.distributed import distributed_c10d

    rendezvous = sys.modules["torch.distributed.rendezvous"]  # torch.distributed has a function of that name
    rendezvous._create_c10d_store = _make_store(rendezvous)  # type: ignore[attr-defined]
    begin = _init(distributed_c10d.init_process_group)
    distributed_c10d.init_process_group = torch.distributed.init_process_group = begin
