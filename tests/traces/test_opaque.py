"""Objects that are no tensors among the inputs of a compiled function's graph."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch._library.opaque_object import OpaqueBase, register_opaque_type
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


class Counter(OpaqueBase):  # type: ignore[misc]
    count = 0


register_opaque_type(Counter, typ="reference")


@torch.library.custom_op("tests_traces::add_count", mutates_args=())
def add_count(x: torch.Tensor, counter: Counter) -> torch.Tensor:
    counter.count += 1
    return x + counter.count


@add_count.register_fake
def _(x: torch.Tensor, counter: Counter) -> torch.Tensor:
    return torch.empty_like(x)


add_count.register_autograd(lambda context, gradient: (gradient, None))


@pytest.mark.parametrize("training", [False, True])
def test_taken_by_a_call(training: bool) -> None:
    counter = Counter()
    compiled = torch.compile(lambda x, c: add_count(x * 2, c) * 3, backend="pjrt")
    x = torch.ones(2, requires_grad=training)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [compiled(x, counter).tolist() for _ in range(2)] == [[9, 9], [12, 12]]


def test_two_processes(tmp_path: Path) -> None:
    """Neither is this process: the name of a process group counts the groups, and failed tries, of its process."""
    command = [sys.executable, "-m", "tests.traces.of_two"]
    root = Path(__file__).parents[2]
    with subprocess.Popen([*command, "1", tmp_path / "store"], cwd=root, stderr=subprocess.PIPE, text=True) as other:
        try:
            first = subprocess.run(
                [*command, "0", tmp_path / "store"], cwd=root, capture_output=True, text=True, timeout=240
            )
            assert first.returncode == 0, first.stderr
            told = other.communicate(timeout=120)[1]
        finally:
            other.kill()
    assert other.returncode == 0, told
    assert "torch.ops.aten.mm(x: DTensor, w: DTensor)" in first.stdout
    assert "torch.ops._c10d_functional.all_gather_into_tensor.default(" in first.stdout


def test_distributed_tensors(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        x = distribute_tensor(torch.randn(4, 4), mesh, [Shard(0)])
        weight = distribute_tensor(torch.randn(4, 4), mesh, [Replicate()])

        def kept(x: DTensor, w: DTensor) -> torch.Tensor:
            return (x @ w).relu().redistribute(placements=[Replicate()]).sum()

        def taken_apart(x: DTensor, w: DTensor) -> torch.Tensor:
            return (DTensor.from_local(x.to_local() * 2, mesh, [Shard(0)]) @ w).full_tensor().sum()

        for fn in (kept, taken_apart):
            told = []
            for run in (fn, torch.compile(fn, backend="pjrt")):
                w = weight.detach().clone().requires_grad_()
                loss = run(x, w)
                loss.backward()
                assert isinstance(w.grad, DTensor)
                told.append((type(loss), w.grad.to_local()))
            assert told[0][0] is told[1][0]
            torch.testing.assert_close(told[0][1], told[1][1])
    finally:
        dist.destroy_process_group()
