"""Pending work on several devices runs separately for each device."""

from __future__ import annotations

import pytest

from tests import fresh

PROGRAM = """
import torch
import torch_pjrt

class Split(torch.nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8).to(first), torch.nn.Linear(8, 2).to(second)

    def forward(self, x):
        hidden = self.first(x.to(self.first.weight.device)).tanh()
        return self.second(hidden.to(self.second.weight.device))

def train(first, second):
    torch.manual_seed(0)
    model, x = Split(first, second), torch.randn(16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    assert model.first.weight.device != model.second.weight.device or first == second
    return loss.item(), *[p.detach().cpu() for p in model.parameters()]

torch.testing.assert_close(train("pjrt:0", "pjrt:1"), train("cpu", "cpu"))
a, b = torch.arange(5, device="pjrt:0"), torch.arange(5, device="pjrt:1")
c, d = a + 1, b * 2
torch_pjrt.sync([c, d])
assert (c.float() * a).sum().item() == 40 and (d.float() * b).sum().item() == 60
"""


@pytest.mark.host_memory
@pytest.mark.parametrize("policy", ["auto", "first"])
def test_a_model_over_two_devices(server: fresh.Server, policy: str) -> None:
    server.run(fresh.Job(PROGRAM, (), {"TORCH_PJRT_CPU_DEVICES": "2", "TORCH_PJRT_COMPILE": policy}))


STEP = """
import torch
import torch_pjrt

def train(device, compiled):
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 3).to(device), torch.randn(16, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = torch_pjrt.compile_step(step) if compiled else step
    losses = [step(x).item() for _ in range(4)]
    return losses, *[p.detach().cpu() for p in model.parameters()]

torch.testing.assert_close(train("pjrt:1", True), train("cpu", False))
"""


@pytest.mark.host_memory
def test_a_captured_step_on_the_second_device(server: fresh.Server) -> None:
    """Its tensors on the CPU, such as a learning rate, are computed there."""
    server.run(fresh.Job(STEP, (), {"TORCH_PJRT_CPU_DEVICES": "2"}))
