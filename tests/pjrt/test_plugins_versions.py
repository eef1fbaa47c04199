"""A small program on a second CPU plugin, with another XLA version, in its own process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

VARIABLE = "TORCH_PJRT_TEST_OTHER_PLUGIN"

PROGRAM = """
import torch, torch_pjrt
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout(0.2),
                            torch.nn.Flatten(), torch.nn.Linear(4 * 36, 3))
x, y = torch.randn(8, 1, 8, 8), torch.arange(8) % 3
host = model(x).sum().item()
model.to("pjrt").eval()
model[1].running_mean.zero_(), model[1].running_var.fill_(1)
model.train()
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []
for step in range(8):
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x.to("pjrt")), y.to("pjrt"))
    loss.backward()
    opt.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
values, indices = torch.arange(10.0, device="pjrt").flip(0).view(2, 5).sort(dim=1)
assert values.cpu().tolist() == [[5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]
view = torch.zeros(4, 4, device="pjrt")
view.t()[1, ::2] = 3
assert view.sum().item() == 6
assert torch.rand(100, device="pjrt").unique().numel() > 90
assert torch_pjrt.metrics()["graphs_compiled"] < 20, torch_pjrt.metrics()
print("plugin:", torch_pjrt._C.plugin()[1])
"""


def other_plugin() -> str:
    if given := os.environ.get(VARIABLE):
        assert Path(given).is_file(), f"{VARIABLE}={given}: no such file"
        return given
    spec = importlib.util.find_spec("fastatomstruct_xla_cpu")
    found = [
        path
        for place in (spec.submodule_search_locations or [] if spec else [])
        for path in Path(place).glob("libpjrt_cpu.so")
    ]
    if not found:
        pytest.skip(f"no second plugin: fastatomstruct-xla-cpu is not installed and {VARIABLE} is not set")
    return str(found[0])


def test_a_second_plugin() -> None:
    path = other_plugin()
    environment = {**os.environ, "TORCH_PJRT_PLUGIN": path}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert f"plugin: {path}" in result.stdout
