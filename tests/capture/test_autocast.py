"""Captures under torch.autocast, and with it inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import torch_pjrt


@pytest.mark.parametrize("enter", ["jit", "step", "file"])
def test_autocast_of_a_tensors_device(tmp_path: Path, enter: str) -> None:
    """Models of transformers do this; here it is around and within ``torch.autocast("cpu")``."""

    def f(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            results = [x @ w]
        with torch.autocast(x.device.type):
            results.append(x @ w)
            with torch.autocast(x.device.type, enabled=False):
                results.append(x @ w)
            results.append(x @ w)
        with torch.autocast("cpu"):
            results.append(x @ w)
            with torch.autocast(x.device.type, enabled=False):
                results.append(x @ w)
            results.append(x @ w)
        return [*results, x @ w]

    given = torch.rand(2, 3), torch.rand(3, 4)
    for outer in (False, True):
        with torch.autocast("cpu", enabled=outer):
            if enter == "file":
                torch_pjrt.export(f, given).save(tmp_path / "it.pjrt")
                call: Any = torch_pjrt.load(tmp_path / "it.pjrt")
            else:
                call = torch_pjrt.jit(f, given) if enter == "jit" else torch_pjrt.compile_step(f)
            assert [each.dtype for each in call(*given)] == [each.dtype for each in f(*given)]
