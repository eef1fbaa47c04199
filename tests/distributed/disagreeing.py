"""Run by each of three processes, which call different collectives, or pass tensors of different sizes or dtypes: all
of them raise, the error names the ranks and sizes, and the group goes on."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import torch_pjrt  # noqa: F401

RANK = int(os.environ["RANK"])
ODD = RANK == 1
warnings.simplefilter("ignore")
dist.init_process_group("pjrt", timeout=timedelta(seconds=60))


def ones(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(sizes, dtype=dtype, device="pjrt")


def parts(*sizes: int) -> list[torch.Tensor]:
    return [ones(size) for size in sizes]


n = 3 if ODD else 4
other = torch.int32 if ODD else torch.float32
CASES: list[tuple[str, Callable[[], object]]] = [
    (r"ranks \[1\]: c10d::allreduce_ sum float32\[3\]", lambda: dist.all_reduce(ones(n))),
    (r"ranks \[1\]: .*int32\[4\]", lambda: dist.all_reduce(ones(4, dtype=other))),
    (r"ranks \[1\]: .*max", lambda: dist.all_reduce(ones(4), dist.ReduceOp.MAX if ODD else dist.ReduceOp.SUM)),
    (r"ranks \[1\]: .*int16", lambda: dist.all_reduce(ones(4, dtype=torch.int16 if ODD else torch.int32))),
    (r"ranks \[1\]: .*float32\[3\]", lambda: dist.broadcast(ones(n), 0)),
    (r"ranks \[1\]: .*by rank 1 of the group", lambda: dist.broadcast(ones(4), int(ODD))),
    (r"ranks \[1\]: .*float32\[3\]", lambda: dist.reduce(ones(n), 0)),
    (r"ranks \[1\]: .*float32\[3\]", lambda: dist.all_gather(parts(n, n, n), ones(n))),
    (r"ranks \[1\]: .*float32\[9\] float32\[3\]", lambda: dist.all_gather_into_tensor(ones(3 * n), ones(n))),
    (r"ranks \[1\]: .*float32\[9\]", lambda: dist.reduce_scatter_tensor(ones(n), ones(3 * n))),
    (r"ranks \[1\]: .*float32\[9\]", lambda: dist.reduce_scatter(ones(n), parts(n, n, n))),
    (r"ranks \[1\]: .*float32\[3\]", lambda: dist.gather(ones(n), None if RANK else parts(4, 4, 4))),
    (r"ranks \[0\]: .*1 of float32\[5\]", lambda: dist.gather(ones(4), None if RANK else parts(4, 4, 5))),
    (r"ranks \[1\]: .*float32\[3\]", lambda: dist.scatter(ones(n), None if RANK else parts(4, 4, 4))),
    (r"ranks \[1\]: .*float32 in parts \[4, 3, 4\], and this rank's is float32\[4\]", lambda: dist.all_gather(
        parts(4, 3, 4), ones(4 if ODD else [4, 3, 4][RANK])
    )),
    (r"ranks \[1\]: .*sum float32 in parts \[4, 3, 4\], and this rank's is float32\[5\]", lambda: dist.reduce_scatter(
        ones(5 if ODD else [4, 3, 4][RANK]), parts(4, 3, 4)
    )),
    (r"ranks \[1\]: .*float32\[3\]", lambda: dist.all_reduce(torch.ones(n, device="cpu" if ODD else "pjrt"))),
    (r"ranks \[1\]: .*float32\[3\]", lambda: dist.broadcast(torch.ones(n, device="pjrt" if ODD else "cpu"), 0)),
    (r"ranks \[1\]: .*takes \[4, 3, 4\] .*send \[3, 3, 3\]", lambda: dist.all_to_all(
        parts(3 + ODD, 3, 3 + ODD), parts(3, 3, 3)
    )),
    (r"ranks \[0\]: .*takes \[3, 3, 3\] .*send \[3, 2, 3\]", lambda: dist.all_to_all_single(
        ones(9), ones(9 - ODD), [3, 3, 3], [3 - ODD, 3, 3]
    )),
    (r"ranks \[0, 2\]: c10d::allreduce_ sum", lambda: dist.broadcast(ones(4), 0) if ODD else dist.all_reduce(ones(4))),
]  # fmt: skip
for words, call in CASES:
    with pytest.raises(RuntimeError, match=rf"(?s)call different collectives:.*{words}"):
        call()
    x = ones(2)
    dist.all_reduce(x)
    assert x.tolist() == [3, 3]
x = ones(2, 3) if ODD else ones(6)  # shapes may differ
with torch.profiler.profile() as profile:
    dist.all_reduce(x)
assert x.sum().item() == 18
assert [event.name for event in profile.events()].count("gloo:all_reduce") == 1  # the comparison has no event
with pytest.raises(RuntimeError, match="world size 3, but found 4 ranks"):
    init_device_mesh("pjrt", (2, 2))
with pytest.raises(ValueError, match=r"a mesh with ranks \[7\]: the world has ranks 0 to 2"):
    DeviceMesh("pjrt", [0, 1, 7])
with pytest.raises(RuntimeError, match=r"(?s)5.*3"):
    torch.ones(2, device="pjrt:5").tolist()
dist.destroy_process_group()
print(len(CASES))
