"""One of two processes that each trace and compile a function of a DTensor and call each other's collectives.

The first prints its forward's trace; the second is late.
"""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.testing import assert_close

import torch_pjrt
from torch_pjrt.traces import Traces


def step(x: DTensor, w: DTensor) -> torch.Tensor:
    return (x @ w).relu().redistribute(placements=[Replicate()]).sum()


def run(rank: int, store: str) -> Traces:
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=120)
    )
    try:
        time.sleep(rank / 2)
        return compare()
    finally:
        dist.destroy_process_group()


def compare() -> Traces:
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    x = distribute_tensor(torch.randn(4, 4), mesh, [Shard(0)])
    w = distribute_tensor(torch.randn(4, 4), mesh, [Replicate()]).requires_grad_()
    compiled = torch.compile(step, backend="pjrt", options={"trace": True})
    loss = compiled(x, w)
    loss.backward()
    wanted = step(x, w)
    (gradient,) = torch.autograd.grad(wanted, w)
    assert_close(loss.to_local(), wanted.to_local())
    assert_close(w.grad.full_tensor(), gradient.full_tensor())
    traces = torch_pjrt.last_traces(compiled)
    one = distribute_tensor(torch.ones(()), mesh, [Replicate()])
    with torch.no_grad():
        for suffix in ("_with_subclasses", ""):
            (out,), saved = traces["forward" + suffix].python_callable()(x, w)
            (grad,) = traces["backward" + suffix].python_callable()(*saved, one)
            assert_close(out.full_tensor(), wanted.full_tensor())
            assert_close(grad.full_tensor(), gradient.full_tensor())
    return traces


def main(rank: int, store: str) -> None:
    traces = run(rank, store)
    if rank == 0:
        print(traces["forward"].text)
