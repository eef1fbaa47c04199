"""Objects that aren't tensors among the inputs of a compiled function's graph."""

from __future__ import annotations

import copy
import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._library.opaque_object import register_opaque_type
from torch._opaque_base import OpaqueBase
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import torch_pjrt
from tests.fresh import Job, Server


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


def test_two_processes(tmp_path: Path, server: Server) -> None:
    """Both are new processes: the name of a process group counts the groups, and failed attempts, of its process."""
    source = "import sys; from tests.traces import of_two; of_two.main(int(sys.argv[1]), sys.argv[2])"
    first, _ = server.run(*(Job(source, (rank, tmp_path / "store")) for rank in range(2)))
    assert "torch.ops.aten.mm(x: DTensor, w: DTensor)" in first.out
    assert "torch.ops._c10d_functional.all_gather_into_tensor.default(" in first.out


def tensor_parallel_steps(mesh: DeviceMesh) -> None:
    """A step of DTensors, whose backward asks for their device by name, and for results' shapes by fake tensors."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    start = copy.deepcopy(model)
    reported = []
    for compiled in (False, True):
        model = copy.deepcopy(start)
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: torch.Tensor, model: nn.Module = model, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run: Any = torch_pjrt.compile_step(step) if compiled else step
        losses = [run(torch.linspace(-1, 1, 12).view(3, 4)).item() for _ in range(3)]
        reported.append((losses, [p.detach().full_tensor() for p in model.parameters()]))  # type: ignore[attr-defined]
        if compiled:
            assert run.programs == 1
    torch.testing.assert_close(reported[0], reported[1])


def tensor_parallel_trace(mesh: DeviceMesh, folder: Path) -> None:
    """The mesh is an input with its name, placements are expressions, and each stage can be saved and run."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.linspace(-1, 1, 12).view(3, 4)
    traces = torch_pjrt.trace(model, x)
    wanted = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    for suffix in ("_with_subclasses", ""):
        text = traces["forward" + suffix].text
        assert "(args_0, device_mesh, _0_weight, _0_bias, _2_weight, _2_bias):" in text
        assert "_0_weight is a DTensor of ._local_tensor, .device_mesh; context ((Shard(dim=0),)," in text
        assert "an object of this process" not in text
        for which in ("forward", "backward"):
            traces[which + suffix].save(folder / f"{which}{suffix}.py")
        with torch.no_grad():
            forward, backward = (runpy.run_path(str(folder / f"{n}{suffix}.py")) for n in ("forward", "backward"))
            (out,), saved = forward["forward" + suffix](x, mesh, *model.parameters())
            torch.testing.assert_close(out, model(x))
            gradients = backward["backward" + suffix](*saved, torch.ones_like(out))
        for gradient, each in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(gradient.to_local(), each.to_local())  # type: ignore[attr-defined]


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
            reported = []
            for run in (fn, torch.compile(fn, backend="pjrt")):
                w = weight.detach().clone().requires_grad_()
                loss = run(x, w)
                loss.backward()
                assert isinstance(w.grad, DTensor)
                reported.append((type(loss), w.grad.to_local()))
            assert reported[0][0] is reported[1][0]
            torch.testing.assert_close(reported[0][1], reported[1][1])
        tensor_parallel_steps(mesh)
        tensor_parallel_trace(mesh, tmp_path)
    finally:
        dist.destroy_process_group()
