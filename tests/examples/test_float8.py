"""examples/float8.py: where torchao is installed, which the tests don't need otherwise."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

PATH = Path(__file__).resolve().parents[2] / "examples/float8.py"


def test_ways_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchao")
    spec = importlib.util.spec_from_file_location("float8_example", PATH)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "float8_example", example)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "STEPS", 4)
    wanted = example.losses("tensorwise", "cpu", "eager")
    assert wanted[-1] < wanted[0]
    for how in ("eager", "torch.compile", "compile_step", "jit"):
        torch.testing.assert_close(example.losses("tensorwise", "pjrt", how), wanted, rtol=1e-3, atol=1e-4)
