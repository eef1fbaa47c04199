"""Run by each of several processes: each function of torch.distributed returns what gloo returns for tensors on the
CPU, or raises immediately. Stores the results for a comparison with a world."""

from __future__ import annotations

import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.distributed.table import ALSO, SIZE, Ranks, attempt, table
from torch_pjrt.distributed import load_by_rank

warnings.simplefilter("ignore")
rank = int(os.environ["RANK"])
limit = timedelta(seconds=60)
dist.init_process_group("pjrt", timeout=limit)
torch.pjrt.set_device(rank)
gloo = Ranks("cpu", dist.new_group(backend="gloo", timeout=limit), lambda values: values(rank))
ours = Ranks("pjrt", dist.group.WORLD, lambda values: values(rank))
given: dict[str, list[torch.Tensor] | str] = {}
for name, case in table():
    wanted, found = attempt(case, gloo), attempt(case, ours)
    given[name] = found if isinstance(found, str) else [tensor.cpu() for tensor in found]
    if isinstance(found, str):
        assert isinstance(wanted, str) or name == "monitored_barrier", (name, wanted, found)
    elif isinstance(wanted, str):
        assert any(words in name for words in ALSO), (name, wanted, found)
    else:
        assert len(found) == len(wanted), (name, wanted, found)
        for tensor, right in zip(found, wanted, strict=True):
            assert torch.equal(tensor.cpu(), right), (name, wanted, found)
x = torch.arange(3.0, device="pjrt") * rank  # a factor in a tensor, and an operand that is a part of its memory
dist.all_reduce(x[1:], dist._make_nccl_premul_sum(torch.tensor(0.5, device="pjrt")))
assert x.tolist() == [0, 3, 6], x
for dtype in (torch.float32, torch.complex64):  # lists of tensors of other sizes, which gloo alone refuses
    parts = [torch.full((1 + (rank + other) % 2, 2), 10 * rank + other) for other in range(SIZE)]
    out = [torch.zeros_like(part, dtype=dtype, device="pjrt") for part in parts]
    dist.all_to_all(out, [part.to("pjrt", dtype) for part in parts])
    for other, part in enumerate(out):
        assert torch.equal(part.cpu(), torch.full(part.shape, 10 * other + rank, dtype=dtype)), (rank, other, part)
    whole = torch.zeros(6, 2, dtype=dtype, device="pjrt")
    out = list(whole.split(list(range(SIZE))))  # the first is empty
    dist.all_gather(out, torch.full((rank, 2), rank + 1, dtype=dtype, device="pjrt"))
    assert whole[:, 1].tolist() == [2, 3, 3, 4, 4, 4], (rank, whole)
    sums = [torch.full((other, 2), 10.0**rank + other, dtype=dtype, device="pjrt") for other in range(SIZE)]
    dist.reduce_scatter(part := torch.zeros_like(sums[rank]), sums)
    assert torch.equal(part.cpu(), torch.full((rank, 2), 1111 + 4 * rank, dtype=dtype)), (rank, part)
mesh = init_device_mesh("pjrt", (SIZE,))
(batch,) = load_by_rank(lambda place, size: [{"x": torch.full((2,), place), "size": size}], mesh)
assert (batch["x"].tolist(), batch["x"].device.type, batch["size"]) == ([rank, rank], "pjrt", SIZE)
dist.barrier()
torch.save(given, Path(sys.argv[1], f"{rank}.pt"))
dist.destroy_process_group()
print(len(given))
