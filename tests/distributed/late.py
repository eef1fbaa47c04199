"""Run as each of three processes, of which one comes late: what the others are told. Prints a JSON of it."""

from __future__ import annotations

import json
import logging
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import torch_pjrt  # noqa: F401

RANK = int(os.environ["RANK"])
lines: list[tuple[str, str]] = []


class Keep(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        lines.append((record.levelname, record.getMessage()))


def be_late() -> None:
    if RANK == 1:
        time.sleep(3)


logging.getLogger("torch_pjrt.distributed").addHandler(Keep())
be_late()
dist.init_process_group("pjrt", timeout=timedelta(seconds=60))
x = torch.ones(2, device="pjrt")
x.tolist()
dist.barrier()  # however long each has begun
lines[1:] = []
be_late()
dist.all_reduce(x)
assert x.tolist() == [3, 3]
be_late()
dist.barrier(dist.new_group([0, 1, 2]))
print(json.dumps(lines))
