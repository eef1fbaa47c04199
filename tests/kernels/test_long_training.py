"""A thousand training steps with the CPU's kernels and without them give one curve."""

from __future__ import annotations

import json

import pytest
import torch

from tests import fresh

STEPS = 1000
PROGRAM = f"""
import json
import torch
from models.resnet import resnet18

torch.manual_seed(0)
images, classes = torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))
model = resnet18(classes=10, width=8, blocks=(1, 1, 1))
compiled = torch.compile(model, backend=BACKEND, dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
losses = []
for step in range({STEPS}):
    batch = slice(step % 4 * 16, step % 4 * 16 + 16)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(compiled(images[batch]), classes[batch])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps(losses))
"""


def curve(server: fresh.Server, backend: str, **environment: str) -> torch.Tensor:
    """Returns the mean loss of each hundred steps."""
    result = server.end(f"BACKEND = {backend!r}\n{PROGRAM}", **environment)
    assert result.returncode == 0, result.stderr
    return torch.tensor(json.loads(result.stdout.splitlines()[-1])).reshape(-1, 100).mean(1)


@pytest.mark.thorough
def test_a_thousand_steps(server: fresh.Server) -> None:
    eager = curve(server, "eager")
    assert eager[-1] < 0.01 < 0.5 < eager[0], "it learns"
    for kernels in ("1", "0"):
        torch.testing.assert_close(
            curve(server, "pjrt", TORCH_PJRT_LIBRARY_KERNELS=kernels), eager, rtol=0.1, atol=1e-3
        )
