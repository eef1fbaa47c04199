"""Run by each of two processes, one of which never joins, and is named by the other, or joins a second group late, or
was in fewer groups before."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import torch_pjrt  # noqa: F401

RANK = int(os.environ["RANK"])


def begin(seconds: float) -> None:
    dist.init_process_group("pjrt", timeout=timedelta(seconds=seconds))


def rendezvous() -> None:
    words = (
        r"init_process_group: rank 0: ranks \[1\] of \[0, 1\] have not come within 1 s\. All of them have to call it"
    )
    if RANK == 0:
        with pytest.raises(dist.DistStoreError, match=words):
            begin(1)


def store() -> None:
    words = r"rank 1: ranks \[0\] of .* within 1 s\. Its store does not answer at MASTER_ADDR=localhost, "
    words += f"MASTER_PORT={os.environ['MASTER_PORT']}: see whether the process of rank 0 runs there"
    if RANK == 1:
        with pytest.raises(dist.DistStoreError, match=words):
            begin(1)


def collective() -> None:
    begin(60 if hasattr(dist, "set_timeout") else 3)
    if hasattr(dist, "set_timeout"):  # since torch 2.15
        dist.set_timeout(timedelta(seconds=3))
    x = torch.ones(2, device="pjrt")
    over = Path(sys.argv[2], "over")
    if RANK == 1:
        until = time.monotonic() + 60
        while time.monotonic() < until and not over.exists():
            time.sleep(0.02)
        return
    words = r"(?s)\[c10d::allreduce_\] .*At the end of that wait ranks \[1\] of \[0, 1\] have not come\..*timeout="
    with pytest.raises(RuntimeError, match=words):
        dist.all_reduce(x)
    assert x.tolist() == [1, 1]
    over.touch()


def again() -> None:
    kept = dist.FileStore(f"{sys.argv[2]}/store", 2)
    for late in (0, 0.5):
        time.sleep(late * RANK)
        dist.init_process_group("gloo", store=kept, rank=RANK, world_size=2, timeout=timedelta(seconds=20))
        x = torch.ones(2, device="pjrt")
        dist.all_reduce(x)
        assert x.tolist() == [2, 2]
        group = dist.new_group([0, 1] if late else [0])  # PyTorch gives both the same name
        if late:  # else a rank may end before the other has connected: the store's barrier has counted both before
            dist.all_reduce(x, group=group)
            assert x.tolist() == [4, 4]
        dist.destroy_process_group()


globals()[sys.argv[1]]()
print("[]", flush=True)
os._exit(0)  # a group whose collective has timed out would wait for the other rank
