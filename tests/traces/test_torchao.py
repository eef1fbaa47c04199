"""torchao's own subclasses on the device, compared with the CPU: quantized weights in inference, float8 in training."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/float8.py"


def quantized(kind: str) -> nn.Module:
    from torchao import quantization as ao

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16)).eval()
    if kind == "nf4":
        from torchao.quantization.quantize_.workflows.nf4 import nf4_tensor as nf4

        for layer in (model[0], model[2]):
            layer.weight = nn.Parameter(nf4.to_nf4(layer.weight.detach(), 32, 8), requires_grad=False)
        return model
    configs: dict[str, Any] = {
        "int8": ao.Int8WeightOnlyConfig,
        "int8 dynamic": ao.Int8DynamicActivationInt8WeightConfig,
        "float8": ao.Float8WeightOnlyConfig,
        "int4": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(32)),
    }
    ao.quantize_(model, configs[kind]())
    return model


@pytest.mark.parametrize("kind", ["int8", "int8 dynamic", "float8", "int4", "nf4"])
def test_inference(kind: str) -> None:
    model, x = quantized(kind), torch.randn(8, 64)
    with torch.no_grad():
        wanted = model(x)
        got = [torch_pjrt.jit(model, [x])(x)]
        model.to("pjrt")
        torch_pjrt.reset_metrics()
        got += [model(x.to("pjrt")), torch.compile(model, backend="pjrt")(x.to("pjrt"))]
    for each in got:
        torch.testing.assert_close(each.cpu(), wanted, rtol=1e-2, atol=1e-2)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    assert wanted.abs().max() > 0.1


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_training(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a small version of examples/float8.py."""
    spec = importlib.util.spec_from_file_location("float8_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "float8_example", example)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "STEPS", 3)
    monkeypatch.setattr(example, "WIDTHS", (32, 16))
    wanted = example.losses(recipe, "cpu", "eager")
    assert wanted[-1] < wanted[0]
    for how in ("eager", "torch.compile", "compile_step", "jit") if recipe == "tensorwise" else ("compile_step",):
        torch.testing.assert_close(example.losses(recipe, "pjrt", how), wanted, rtol=1e-3, atol=1e-4)
