"""Lightning, by each of its names: which accelerator it takes, in which precision, and examples/lightning_digits.py."""

from __future__ import annotations

import importlib
import json
import re
import runpy
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt

pytest.importorskip("lightning", reason="lightning, of requirements.lock")
pytest.importorskip("pytorch_lightning", reason="pytorch-lightning, of requirements.lock")

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "lightning": ("lightning.pytorch", "lightning.fabric"),
    "pytorch_lightning": ("pytorch_lightning", "lightning_fabric"),
}
QUIET = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}


def makers(package: str) -> list[Any]:
    """Trainer and Fabric of that package, each made with as little as possible."""
    pytorch, fabric = (importlib.import_module(name) for name in PACKAGES[package])
    return [lambda **options: pytorch.Trainer(**QUIET, **options), fabric.Fabric]


@pytest.mark.parametrize("package", PACKAGES)
def test_device(package: str) -> None:
    """`Trainer` and `Fabric` with `accelerator="auto"`, `"gpu"`, `"pjrt"`, `"cpu"`."""
    for make in makers(package):
        for options in ({}, {"accelerator": "gpu"}, {"accelerator": "pjrt"}, {"strategy": "single_pjrt"}):
            assert make(**options).strategy.root_device == torch.device("pjrt", 0)
        assert make(accelerator="cpu").strategy.root_device.type == "cpu"
        assert make(accelerator="pjrt", devices=[0]).strategy.root_device.index == 0


@pytest.mark.host_memory
@pytest.mark.parametrize("package", PACKAGES)
def test_several_devices_are_as_many_processes(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`devices=2` trains with DDP in two processes, each on a device of its own, by itself and under `torchrun`."""
    for make in makers(package):
        strategy = make(accelerator="pjrt", devices=2).strategy
        assert type(strategy).__name__ == "DDPStrategy"
        assert strategy.parallel_devices == [torch.device("pjrt", 0)] * 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert len(makers(package)[0](accelerator="pjrt").strategy.parallel_devices) == 2


@pytest.mark.parametrize("package", PACKAGES)
def test_devices_that_are_not_there_are_refused(package: str) -> None:
    for make in makers(package):
        for devices in ([1], "0,1"):
            with pytest.raises(ValueError, match=r"'pjrt' has 1 device here.*Pass no more, or the indices of some"):
                make(accelerator="pjrt", devices=devices)


@pytest.mark.parametrize("package", PACKAGES)
def test_processes_that_would_share_a_plugins_devices_are_refused(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_own_memory = types.SimpleNamespace(is_host_memory=False)
    monkeypatch.setattr(torch.pjrt, "get_device_properties", lambda *_: of_own_memory)
    monkeypatch.setattr(torch.pjrt, "device_count", lambda: 2)
    for make in makers(package):
        with pytest.raises(ValueError, match=r"would each take all of them. Pass devices=1, or a list of one index"):
            make(accelerator="pjrt", devices=2)


@pytest.mark.parametrize("package", PACKAGES)
def test_precision(package: str) -> None:
    """`precision="16-mixed"` and `"bf16-mixed"`."""
    trainer, fabric = makers(package)
    for precision in ("16-mixed", "bf16-mixed"):
        for plugin in (trainer(precision=precision).precision_plugin, fabric(precision=precision)._precision):
            assert plugin.device == "pjrt"
            assert (plugin.scaler is not None) == (precision == "16-mixed")
            assert plugin.scaler is None or plugin.scaler._device == "pjrt"


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_fabric_trains_there(precision: str) -> None:
    fabric = importlib.import_module("lightning.fabric").Fabric(precision=precision)
    network = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    network, optimizer = fabric.setup(network, torch.optim.SGD(network.parameters(), 0.1))
    x = fabric.to_device(torch.randn(8, 4))
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = network(x).square().mean()
        fabric.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert loss.device.type == "pjrt"
    assert losses[-1] < losses[0] / 2


def test_what_a_sanity_check_draws_is_taken_back() -> None:
    """`isolate_rng`."""
    from lightning.pytorch.utilities.seed import isolate_rng

    with isolate_rng():
        drawn = torch.rand(3, device="pjrt").tolist()
    assert torch.rand(3, device="pjrt").tolist() == drawn


def test_too_little_memory_is_known() -> None:
    """The batch size finder knows our error."""
    from lightning.pytorch.tuner.batch_size_scaling import is_oom_error

    with pytest.raises(torch.OutOfMemoryError) as raised:
        torch.zeros(2**45, device="pjrt")
    assert is_oom_error(raised.value)
    assert not is_oom_error(RuntimeError("another"))


def test_statistics_of_the_device() -> None:
    """`DeviceStatsMonitor`'s numbers."""
    held = torch.ones(1000, device="pjrt")
    torch_pjrt.sync(held)
    (trainer, _) = makers("lightning")
    stats = trainer().accelerator.get_device_stats(torch.device("pjrt", 0))
    assert stats["allocated_bytes.all.current"] >= 4000


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    """Training, validation and resuming: examples/lightning_digits.py."""
    runpy.run_path(str(ROOT / "examples/lightning_digits.py"), run_name="__main__")
    captured = capsys.readouterr()
    assert "on pjrt:0: 126 steps" in captured.out
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.host_memory
@pytest.mark.thorough
def test_two_processes(trains_in_two: Callable[[str], None]) -> None:
    trains_in_two("lightning")


@pytest.mark.host_memory
@pytest.mark.thorough
def test_two_processes_that_shard(trains_in_two: Callable[[str], None]) -> None:
    trains_in_two("lightning, sharding")


@pytest.mark.host_memory
def test_two_processes_that_it_starts(tmp_path: Path) -> None:
    command = [sys.executable, Path(__file__).with_name("of_processes.py"), "lightning", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    reported = [json.loads(text) for text in re.findall(r"{[^}]*}", result.stdout)]  # both write there
    assert len(reported) == 2, result.stdout
    for each in reported:
        for found, wanted in zip(each["found"], each["alone"], strict=True):
            assert found == pytest.approx(wanted, rel=1e-4, abs=1e-5)
