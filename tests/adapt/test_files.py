"""Files: torch.save and torch.load between devices, safetensors, and checkpoints where there is no plugin."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch

DEVICE = "pjrt"


def checkpoint() -> dict[str, Any]:
    model = torch.nn.Linear(3, 2).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, device=DEVICE)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.pjrt.get_rng_state()}


@pytest.mark.parametrize("location", [None, "cpu", DEVICE, torch.device("pjrt:0"), {"pjrt:0": "cpu"}, {"cpu": DEVICE}])
def test_map_location(tmp_path: Path, location: Any) -> None:
    host, device = torch.arange(3.0), torch.arange(3.0, device=DEVICE) + 1
    torch.save({"host": host, "device": device}, tmp_path / "file")
    loaded = torch.load(tmp_path / "file", map_location=location)
    devices = {
        None: ("cpu", DEVICE),
        "cpu": ("cpu", "cpu"),
        DEVICE: (DEVICE, DEVICE),
        "pjrt:0": (DEVICE, DEVICE),
        "{'pjrt:0': 'cpu'}": ("cpu", "cpu"),
        "{'cpu': 'pjrt'}": (DEVICE, DEVICE),
    }[None if location is None else str(location)]
    assert (loaded["host"].device.type, loaded["device"].device.type) == devices
    assert loaded["host"].tolist() == [0, 1, 2]
    assert loaded["device"].tolist() == [1, 2, 3]


def test_a_checkpoint_where_no_plugin_is_installed(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    torch.save(checkpoint(), file)
    program = f"""
    import torch, torch_pjrt.plugins as plugins
    plugins._announced = lambda: iter(())
    loaded = torch.load({str(file)!r}, map_location="cpu")
    model = torch.nn.Linear(3, 2)
    model.load_state_dict(loaded["model"])
    torch.optim.Adam(model.parameters()).load_state_dict(loaded["optimizer"])
    try:
        torch.load({str(file)!r})
    except RuntimeError as error:
        print(error)
    """
    without_any = {name: value for name, value in os.environ.items() if name != "TORCH_PJRT_PLUGIN"}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, env=without_any
    )
    assert result.returncode == 0, result.stderr
    assert "Attempting to deserialize object on a PJRT device but torch.pjrt.is_available() is False" in result.stdout
    assert "map_location=torch.device('cpu')" in result.stdout


def test_a_checkpoint_goes_on(tmp_path: Path) -> None:
    saved = checkpoint()
    torch.save(saved, tmp_path / "file")
    loaded = torch.load(tmp_path / "file", map_location=DEVICE)
    model = torch.nn.Linear(3, 2).to(DEVICE)
    model.load_state_dict(loaded["model"])
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.load_state_dict(loaded["optimizer"])
    model(torch.ones(1, 3, device=DEVICE)).sum().backward()
    optimizer.step()
    assert torch.equal(loaded["rng"].cpu(), saved["rng"])
    assert {p.device.type for p in model.parameters()} == {DEVICE}


@pytest.mark.parametrize("device", [DEVICE, "pjrt:0", torch.device(DEVICE), 0])
def test_safetensors(tmp_path: Path, device: Any) -> None:
    file = tmp_path / "file.safetensors"
    values = {
        "a": torch.arange(6.0, device=DEVICE).reshape(2, 3),
        "b": torch.ones(2, dtype=torch.bfloat16, device=DEVICE),
    }
    safetensors.torch.save_file(values, file)
    for loaded in (safetensors.torch.load_file(file, device=device), dict(opened(file, device))):
        assert {v.device for v in loaded.values()} == {torch.device("pjrt:0")}
        assert loaded["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert loaded["b"].dtype == torch.bfloat16
    assert safetensors.torch.load_file(file)["a"].device.type == "cpu"
    with safetensors.safe_open(file, framework="pt", device=device) as f:
        assert f.get_slice("a")[:, 1].tolist() == [1, 4]


def opened(file: Path, device: Any) -> list[tuple[str, torch.Tensor]]:
    with safetensors.safe_open(file, framework="pt", device=device) as f:
        return [(key, f.get_tensor(key)) for key in f.keys()]  # noqa: SIM118


def test_safetensors_models(tmp_path: Path) -> None:
    file = str(tmp_path / "file.safetensors")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).to(DEVICE)
    model[1].weight = model[0].weight
    safetensors.torch.save_model(model, file)
    other = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).to(DEVICE)
    other[1].weight = other[0].weight
    safetensors.torch.load_model(other, file, device=DEVICE)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    with pytest.raises(safetensors.SafetensorError, match="invalid"):
        safetensors.torch.load_file(file, device="nonsense")


def test_safetensors_first() -> None:
    for first in ("safetensors", "safetensors.torch"):
        program = f"import {first}, safetensors.torch, torch; print(safetensors.torch.safe_open.__module__)"
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        assert result.stdout == "torch_pjrt.adapt.files\n", result.stderr
