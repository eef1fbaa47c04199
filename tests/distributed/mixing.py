"""Run by each of three processes, of which one has tensors on the CPU: collectives are what they are on one device.
Argument: the backend."""

from __future__ import annotations

import os
import sys
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist

import torch_pjrt

RANK, SIZE = int(os.environ["RANK"]), 3
warnings.simplefilter("ignore")
dist.init_process_group(sys.argv[1], timeout=timedelta(seconds=60))
device = torch.device("cpu" if RANK == 1 else "pjrt")


def of(*values: float) -> torch.Tensor:
    return torch.tensor(values, device=device)


found: list[object] = []
before = torch_pjrt.metrics()["host_fallbacks"]
dist.all_reduce(x := of(1.0, RANK))
found.append(x.tolist() == [3, 3])
dist.broadcast(x := of(RANK), 1)
found.append(x.tolist() == [1])
dist.all_gather(parts := [of(-1), of(-1), of(-1)], of(RANK))
found.append(torch.cat(parts).tolist() == [0, 1, 2])
dist.all_gather_into_tensor(x := of(0, 0, 0), of(RANK))
found.append(x.tolist() == [0, 1, 2])
dist.reduce_scatter_tensor(x := of(0), of(0, 10, 20) + RANK)
found.append(x.tolist() == [3 + 30 * RANK])
dist.all_to_all_single(x := of(0, 0, 0), of(0, 10, 20) + RANK)
found.append(x.tolist() == [10 * RANK, 10 * RANK + 1, 10 * RANK + 2])
if RANK == 2:
    dist.send(of(7), 1)
elif RANK == 1:
    dist.recv(x := of(0), 2)
    found.append(x.tolist() == [7] and x.device == device)
found += [True] * (RANK != 1)
after = torch_pjrt.metrics()["host_fallbacks"]
found.append((after == before) == (RANK == 1))  # the device's collectives alone are counted
assert all(found), (RANK, found)
dist.destroy_process_group()
print(len(found))
