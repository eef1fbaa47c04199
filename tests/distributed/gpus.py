"""Run by each of two processes on tests/pjrt/ranks.c: a client of several processes, as a program sees it. Prints a
JSON of the checks."""

from __future__ import annotations

import json
import os
import sys
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import torch_pjrt

RANK = int(os.environ["RANK"])
OTHER = 1 - RANK


def together() -> None:
    assert torch.pjrt.device_count() == 2  # the host's, before there is a client
    dist.init_process_group("pjrt", timeout=timedelta(seconds=60))
    assert torch.pjrt.device_count() == 2
    x = torch.full((3,), RANK + 1.0, device="pjrt")
    assert x.device.index == RANK  # the only one there is for this process
    with pytest.raises(RuntimeError, match=rf"it is process {OTHER}'s, and this process has device {RANK} alone"):
        torch.ones(2, device=f"pjrt:{OTHER}").tolist()
    torch_pjrt.reset_metrics()
    y = x.clone()
    for step in range(3):
        y = y * 2
        dist.all_reduce(y)
        y = y - step
        if step % 2 == RANK:
            y.tolist()  # each rank reads when it likes: collectives are programs of their own
    z = x.exp()
    pair = dist.new_group([1, 0])
    dist.all_reduce(z, group=pair)
    assert y.tolist() == [90.0] * 3, y
    torch.testing.assert_close(z.cpu(), torch.full((3,), 1.0).exp() + torch.full((3,), 2.0).exp())
    metrics = torch_pjrt.metrics()
    assert metrics["collectives"] == {"all_reduce": 4}, metrics["collectives"]
    assert metrics["collective_bytes"] == {"all_reduce": 48}
    assert metrics["host_fallbacks"] == {}
    dist.barrier()


def unnumbered() -> None:
    """Starts as torch.multiprocessing.spawn does: no process knows its place on the host, and each has its own GPU."""
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        del os.environ[name]
    dist.init_process_group("pjrt", timeout=timedelta(seconds=60))
    x = torch.full((3,), RANK + 1.0, device="pjrt")
    assert x.device.index == RANK  # and the plugin refuses a client with another's
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 3
    dist.barrier()


def late() -> None:
    """A client that was started alone stays alone."""
    torch.ones(2, device="pjrt").tolist()
    with pytest.warns(UserWarning, match=r"the device was used before.*Call init_process_group first"):
        dist.init_process_group("pjrt", timeout=timedelta(seconds=60))
    x = torch.full((2,), RANK + 1.0, device="pjrt")
    dist.all_reduce(x)
    assert x.tolist() == [3.0, 3.0]
    assert torch_pjrt.metrics()["host_fallbacks"] == {"c10d::allreduce_": 1}
    dist.barrier()


def missing() -> None:
    """The plugin's time limit applies, with the store's message."""
    if RANK == 1:  # joins the group but starts no client
        torch_pjrt.adapt.distributed._begin_processes = lambda *_: sys.exit(print(json.dumps(sys.argv[1:])))
    words = (
        r"plugin 'xla_cuda_ranks' could not begin as process 0 of 2:.*DEADLINE_EXCEEDED.*no process has put 'device:1' "
        r"within 200 ms.*All processes have to call it.*TORCH_PJRT_PLUGIN=xla_cpu_pjrt"
    )
    with pytest.raises(RuntimeError, match=f"(?s){words}"):
        dist.init_process_group("pjrt", timeout=timedelta(seconds=60))


def failed() -> None:
    """A collective that fails leaves its operands and results unchanged, and nothing pending."""
    dist.init_process_group("pjrt", timeout=timedelta(seconds=60))
    x = torch.arange(3.0, device="pjrt") * (RANK + 1)
    whole = torch.full((8,), -1.0, device="pjrt")
    part = whole[1:7]  # which a program writes by way of a tensor of its own
    assert whole.sum().item() == -8.0
    if RANK == 0:
        os.environ["TORCH_PJRT_TEST_RUN_TIMEOUT"] = "100"
        for call in (
            lambda: dist.all_reduce(x),
            lambda: dist.broadcast(part, src=1),
            lambda: dist.all_gather_into_tensor(whole[:6], x),
            lambda: dist.all_gather_into_tensor(torch.empty(6, device="pjrt"), x),
            lambda: dist.reduce_scatter_tensor(x[:1], x[:2]),
        ):
            with pytest.raises(RuntimeError, match="no process has put 'run "):
                call()
            assert not any(map(torch_pjrt._C.is_pending, (x, whole)))
            assert x.tolist() == [0.0, 1.0, 2.0]
            assert whole.tolist() == [-1.0] * 8
            assert (x + whole[:3]).tolist() == [-1.0, 0.0, 1.0]
        torch.pjrt.synchronize()
        torch_pjrt.sync()
        del os.environ["TORCH_PJRT_TEST_RUN_TIMEOUT"]
    dist.barrier()
    dist.all_reduce(x)
    assert x.tolist() == [0.0, 3.0, 6.0]
    dist.barrier()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for case in sys.argv[1:]:
        globals()[case]()
    print(json.dumps(sys.argv[1:]))
