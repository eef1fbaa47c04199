"""Run by each of three processes, one of which is late: what the others report. Prints a JSON of it."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import torch_pjrt  # noqa: F401

RANK = int(os.environ["RANK"])
FOLDER = Path(sys.argv[1])  # of all three
waits = 0
lines: list[tuple[str, str]] = []


class Keep(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        lines.append((record.levelname, record.getMessage()))
        (FOLDER / f"{waits} {RANK}").touch()


def be_late() -> None:
    """Waits until the others have reported it, and as long again: they report it once."""
    global waits
    waits += 1
    if RANK == 1:
        until = time.monotonic() + 30
        while time.monotonic() < until and not all((FOLDER / f"{waits} {rank}").exists() for rank in (0, 2)):
            time.sleep(0.02)
        time.sleep(1)


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
