"""The documentation site builds, has no broken link, and its reference has every public name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

import torch_pjrt

ROOT = Path(__file__).resolve().parents[2]


def test_it_builds_and_has_every_public_name() -> None:
    environment = os.environ | {"TORCH_PJRT_VENV": sys.prefix}
    command = [sys.executable, ROOT / "dev", "docs"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]

    from sphinx.util.inventory import InventoryFile

    page = ROOT / "build/docs/index.html"
    assert str(page) in result.stdout
    assert page.exists()
    inventory = InventoryFile.loads((page.parent / "objects.inv").read_bytes(), uri="")
    reported = {name for kind in inventory.data.values() for name in kind}
    device = {f"torch.pjrt.{name}" for name, value in vars(torch.pjrt).items() if is_public(name, value)}
    assert len(device) > 40
    package = {f"torch_pjrt.{name}" for name in torch_pjrt.__all__}
    assert sorted((device | package) - reported) == []


def is_public(name: str, value: object) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", "").startswith("torch_pjrt")
