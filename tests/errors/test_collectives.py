"""Collectives of torch.distributed that are refused name a replacement. A refused collective changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DistributedSampler

import torch_pjrt

pytestmark = pytest.mark.host_memory


@pytest.fixture
def world(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("pjrt", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_dtype_that_gloo_does_not_reduce(world: None) -> None:
    x = torch.tensor([1, 2], dtype=torch.int16, device="pjrt")
    with pytest.raises(
        RuntimeError, match=r"^\[c10d::allreduce_\] gloo can't reduce Short; .* x\.to\(torch\.float32\)$"
    ):
        dist.all_reduce(x)
    assert x.tolist() == [1, 2]
    y = torch.ones(2, device="pjrt").to(torch.float8_e4m3fn)
    with pytest.raises(RuntimeError, match=r"\[c10d::_reduce_scatter_base_\] gloo can't reduce Float8_e4m3fn"):
        dist.reduce_scatter_tensor(torch.empty_like(y), y)
    dist.all_reduce(x := x.float())
    assert x.tolist() == [1, 2]


def test_strict_mode(world: None) -> None:
    x = torch.ones(2, device="pjrt")
    with torch_pjrt.strict_mode(), pytest.raises(RuntimeError, match=r"\[c10d::broadcast_\] would run on the host at"):
        dist.broadcast(x, 0)
    assert x.tolist() == [1, 1]


def test_a_collective_in_a_captured_step(world: None) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return x

    with pytest.raises(torch_pjrt.CaptureError, match="has collectives of the host's tensors only"):
        torch_pjrt.compile_step(step)(torch.ones(2, device="pjrt"))


def test_a_mesh_of_more_ranks_than_there_are(world: None) -> None:
    with pytest.raises(RuntimeError, match=r"bigger|default process group|world size"):
        init_device_mesh("pjrt", (2,))


def test_no_process_group() -> None:
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        dist.all_reduce(torch.ones(2, device="pjrt"))
    with pytest.raises((RuntimeError, ValueError), match="process group has not been initialized"):
        DistributedSampler([1, 2, 3])


def test_a_pytorch_without_gloo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_gloo_available", lambda: False)
    with pytest.raises(NotImplementedError, match=r"on device 'pjrt' are gloo's, which this build of PyTorch doesn't"):
        dist.init_process_group("pjrt", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
