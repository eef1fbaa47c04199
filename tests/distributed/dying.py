"""Run by each of several processes, of which the last one dies while the others wait for it: each kind of collective
raises in all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import torch_pjrt  # noqa: F401

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LIMIT = 20.0
dist.init_process_group("pjrt", timeout=timedelta(seconds=LIMIT))
torch.pjrt.set_device(RANK)
last = SIZE - 1
part, whole = torch.ones(2, device="pjrt"), torch.ones(2 * SIZE, device="pjrt")
Group = dist.ProcessGroup
COLLECTIVES: dict[str, Callable[[Group], object]] = {
    "reduce_scatter_tensor": lambda group: dist.reduce_scatter_tensor(part, whole, group=group),
    "reduce_scatter": lambda group: dist.reduce_scatter(part, list(whole.chunk(SIZE)), group=group),
    "all_reduce": lambda group: dist.all_reduce(part, group=group),
    "all_reduce_coalesced": lambda group: dist.all_reduce_coalesced([part, whole], group=group),
    "broadcast": lambda group: dist.broadcast(part, last, group=group),
    "reduce": lambda group: dist.reduce(part, 0, group=group),
    "all_gather": lambda group: dist.all_gather([part.clone() for _ in range(SIZE)], part, group=group),
    "all_gather_into_tensor": lambda group: dist.all_gather_into_tensor(whole, part, group=group),
    "scatter": lambda group: dist.scatter(part, None, last, group=group),
    "all_to_all": lambda group: dist.all_to_all(list(whole.chunk(SIZE)), list(whole.chunk(SIZE)), group=group),
    "all_to_all_single": lambda group: dist.all_to_all_single(torch.empty_like(whole), whole, group=group),
    "recv": lambda group: dist.recv(part, last, group=group),
    "barrier": lambda group: dist.barrier(group),
    "all_gather_object": lambda group: dist.all_gather_object([None] * SIZE, 3, group=group),
    "broadcast_object_list": lambda group: dist.broadcast_object_list([None], last, group=group),
}
groups = {name: dist.new_group(timeout=timedelta(seconds=LIMIT)) for name in COLLECTIVES}
for group in groups.values():  # gloo connects the ranks when they first meet
    dist.all_reduce(torch.ones(1, device="pjrt"), group=group)
print("[]", flush=True)
if last == RANK:
    time.sleep(0.5)
    os._exit(0)
start = time.monotonic()
for name, collective in COLLECTIVES.items():
    with pytest.raises(RuntimeError, match=r"closed by peer|Timed out|reset by peer|Broken pipe|writeError|readError"):
        collective(groups[name])
assert time.monotonic() - start < LIMIT  # all are notified, and none waits for its timeout
os._exit(0)
