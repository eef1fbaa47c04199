"""Run by each of several processes, of which the last one dies while the others wait for it: each row of the table of
torch.distributed's functions ends in all of them, in an error unless it needs nothing of the dead one."""

from __future__ import annotations

import os
import re
import time
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import torch_pjrt  # noqa: F401
from tests.distributed.table import SIZE, Ranks, attempt, gradients, moves, objects, reductions, with_gradients

RANK = int(os.environ["RANK"])
LIMIT = timedelta(seconds=20)
# Rows in which gloo waits for a living rank, which has raised, until the timeout, and one that waits for nobody.
LATE = ("send_and_recv", "send_object_list", "monitored_barrier", "from_itself")
# Rows in which a rank may need nothing of the last one.
NEEDS_NOTHING = ("isend_", "to_next_", "to_itself")
WORDS = r"closed by peer|Timed out|reset by peer|Broken pipe|writeError|readError|Connection refused"
warnings.simplefilter("ignore")
dist.init_process_group("pjrt", timeout=LIMIT)
torch.pjrt.set_device(RANK)
rows = [(f"{name} ", case) for name, case in (*reductions("SUM", torch.float32), *moves(torch.float32))]
rows += [*gradients(), *with_gradients(), *objects()]
rows = [(name, case) for name, case in rows if not name.startswith(LATE)]
groups = [dist.new_group(timeout=LIMIT) for _ in rows]
for group in groups:  # gloo connects the ranks when they first meet
    dist.all_reduce(torch.ones(1, device="pjrt"), group=group)
print("[]", flush=True)
if RANK == SIZE - 1:
    time.sleep(0.5)
    os._exit(0)
for (name, case), group in zip(rows, groups, strict=True):
    start = time.monotonic()
    found = attempt(case, Ranks("pjrt", group, lambda values: values(RANK)))
    if isinstance(found, str):
        assert re.search(WORDS, found), (name, found)
        if not name.startswith(NEEDS_NOTHING):
            assert re.search(r"ranks \[0, 1, 2\]", found), (name, found)
    else:
        assert name.startswith(NEEDS_NOTHING), name
    assert time.monotonic() - start < LIMIT.total_seconds() + 5, name
with pytest.raises(RuntimeError, match=rf"(?s)\[c10d::(send|recv_)\].*Rank {RANK} waited for rank 2: see"):
    dist.send_object_list([3], SIZE - 1) if RANK else dist.recv_object_list([None], SIZE - 1)
os._exit(0)
