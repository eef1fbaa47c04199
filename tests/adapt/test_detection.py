"""torchvision's losses of boxes, which select pairs by a boolean mask."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import torch_pjrt

# torchvision's source, for environments in which torchvision can't be imported.
WITH_A_MASK = """
import torch

def _loss_inter_union(boxes1, boxes2):
    left, top = torch.maximum(boxes1[:, 0], boxes2[:, 0]), torch.maximum(boxes1[:, 1], boxes2[:, 1])
    right, bottom = torch.minimum(boxes1[:, 2], boxes2[:, 2]), torch.minimum(boxes1[:, 3], boxes2[:, 3])
    shared = torch.zeros_like(left)
    mask = (right > left) & (bottom > top)
    shared[mask] = (right[mask] - left[mask]) * (bottom[mask] - top[mask])
    areas = [(b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) for b in (boxes1, boxes2)]
    return shared, areas[0] + areas[1] - shared
"""


@pytest.fixture
def utils(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """torchvision.ops._utils, imported after torch_pjrt."""
    try:
        return importlib.import_module("torchvision.ops._utils")
    except (ImportError, RuntimeError):  # a torchvision for another torch raises the second
        package = tmp_path / "torchvision" / "ops"
        package.mkdir(parents=True)
        for file, text in ((package.parent / "__init__.py", ""), (package / "__init__.py", "")):
            file.write_text(text)
        (package / "_utils.py").write_text(WITH_A_MASK)
        for name in ("torchvision", "torchvision.ops", "torchvision.ops._utils"):
            # The first line makes monkeypatch restore the entry, the second makes Python import the module.
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
            del sys.modules[name]
        monkeypatch.syspath_prepend(tmp_path)
        return importlib.import_module("torchvision.ops._utils")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shared_and_covered_areas(utils: ModuleType, dtype: torch.dtype) -> None:
    corners = torch.rand(2, 50, 2, dtype=dtype)
    boxes = torch.cat([corners, corners + torch.rand(2, 50, 2, dtype=dtype)], -1)
    boxes[1, 0] = boxes[0, 0, 2:].repeat(2)  # they share a corner
    results = []
    for device in ("cpu", "pjrt"):
        one, other = (b.to(device, copy=True).requires_grad_() for b in boxes)
        with torch_pjrt.strict_mode():  # no host, no size that depends on data
            shared, covered = utils._loss_inter_union(one, other)
            gradients = torch.autograd.grad((shared / covered).sum(), (one, other))
        results.append([t.detach().cpu() for t in (shared, covered, *gradients)])
    assert 0 < int((results[0][0] > 0).sum()) < 50
    torch.testing.assert_close(results[1], results[0])
