"""accelerate: which device it takes, in which precision it trains, what a checkpoint restores."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

accelerate = pytest.importorskip("accelerate", reason="accelerate, of requirements.lock")


@pytest.fixture(autouse=True)
def chosen_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ACCELERATE_USE_CPU", "ACCELERATE_TORCH_DEVICE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize(
    ("environment", "options", "device"),
    [
        ({}, {}, "pjrt"),
        ({}, {"cpu": True}, "cpu"),
        ({"ACCELERATE_USE_CPU": "1"}, {}, "cpu"),
        ({"ACCELERATE_TORCH_DEVICE": "cpu"}, {}, "cpu"),
    ],
)
def test_device(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], options: Any, device: str) -> None:
    """`Accelerator()`, unless `cpu=True`, `ACCELERATE_USE_CPU` or `ACCELERATE_TORCH_DEVICE` says otherwise."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    accelerator = accelerate.Accelerator(**options)
    assert accelerator.device.type == device
    assert accelerator.prepare(nn.Linear(2, 2)).weight.device.type == device


def started_by_torchrun(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    started = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": 0}
    for name, value in started.items():
        monkeypatch.setenv(name, str(value))


def test_one_process_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only process of `torchrun --nproc-per-node 1` trains."""
    started_by_torchrun(monkeypatch, 1)
    accelerator = accelerate.Accelerator()
    assert (accelerator.device.type, accelerator.num_processes) == ("pjrt", 1)
    assert os.environ["LOCAL_RANK"] == "0"
    network = accelerator.prepare(nn.Linear(2, 2))
    accelerator.backward(network(torch.ones(3, 2).to(accelerator.device)).sum())
    assert network.weight.grad.tolist() == [[3, 3], [3, 3]]
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_a_step_in_each_precision(precision: str) -> None:
    """`mixed_precision` fp16 and bf16, as autocast and GradScaler by hand."""
    accelerator = accelerate.Accelerator(mixed_precision=precision)
    network, x = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)), torch.randn(5, 8)
    by_hand = copy.deepcopy(network).to("pjrt")
    network = accelerator.prepare(network)
    dtype = {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    assert (accelerator.scaler is not None) == (precision == "fp16")

    loss = network(x.to(accelerator.device)).square().mean()
    accelerator.backward(loss)
    with torch.autocast("pjrt", dtype=dtype, enabled=precision != "no"):
        wanted = by_hand(x.to("pjrt")).float().square().mean()
    torch.amp.GradScaler("pjrt", enabled=precision == "fp16").scale(wanted).backward()
    torch.testing.assert_close(loss.detach().cpu(), wanted.detach().cpu())
    for found, expected in zip(network.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(found.grad.cpu(), expected.grad.cpu(), rtol=1e-3, atol=1e-5)


def test_a_checkpoint_has_the_generator(tmp_path: Path) -> None:
    """`save_state` and `load_state`, the device's random numbers included."""
    accelerator = accelerate.Accelerator()
    accelerator.prepare(nn.Linear(2, 2))
    accelerator.save_state(str(tmp_path))
    drawn = torch.rand(4, device="pjrt").tolist()
    torch.rand(3, device="pjrt")
    accelerator.load_state(str(tmp_path))
    assert torch.rand(4, device="pjrt").tolist() == drawn


@pytest.mark.parametrize("when", ["at once", "when it runs"])
def test_too_large_a_batch_is_tried_smaller(when: str) -> None:
    """`find_executable_batch_size`."""
    tried = []

    @accelerate.utils.find_executable_batch_size(
        starting_batch_size=2**45, reduce_batch_size_fn=lambda: tried[-1] // 2**20
    )
    def train(batch_size: int) -> torch.Tensor:
        tried.append(batch_size)
        if when == "at once":
            return torch.zeros(batch_size, device="pjrt")
        return torch.zeros(1, device="pjrt").expand(batch_size) + 1

    assert train().numel() == tried[-1] == 2**25
    assert tried == [2**45, 2**25]


def test_other_errors_are_no_matter_of_size() -> None:
    with pytest.raises(RuntimeError, match="another"):
        accelerate.utils.find_executable_batch_size(lambda batch_size: (_ for _ in ()).throw(RuntimeError("another")))()


def test_memory_for_a_device_map() -> None:
    """`get_max_memory`, `infer_auto_device_map`, `dispatch_model`; memory of the host counts once."""
    memory = accelerate.utils.get_max_memory()
    assert set(memory) == ({0} if torch.pjrt.get_device_properties().is_host_memory else {0, "cpu"})
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    devices = accelerate.infer_auto_device_map(network, accelerate.utils.get_balanced_memory(network))
    assert devices == {"": 0}
    assert accelerate.dispatch_model(network, devices)[0].weight.device == torch.device("pjrt", 0)


@pytest.mark.host_memory
def test_two_processes(trains_in_two: Callable[[str], None]) -> None:
    """Several processes of `torchrun` or `accelerate launch` train with DDP, each on the device of its number."""
    trains_in_two("accelerate")


@pytest.mark.host_memory
def test_two_processes_with_fsdp2(trains_in_two: Callable[..., None]) -> None:
    """`FullyShardedDataParallelPlugin(fsdp_version=2)`."""
    trains_in_two("accelerate, sharding", ACCELERATE_USE_FSDP="true")  # as `accelerate launch --use_fsdp` sets it
