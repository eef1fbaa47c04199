"""Steps of optimizers that Dynamo captures."""

from typing import Any

import pytest
import torch

import torch_pjrt
from tests.fresh import Job, Server

MADE = {
    "Adam": lambda groups: torch.optim.Adam(groups, lr=0.1),
    "AdamW, one by one": lambda groups: torch.optim.AdamW(groups, lr=0.1, foreach=False),
    "NAdam": lambda groups: torch.optim.NAdam(groups, lr=0.1),
    "Adamax": lambda groups: torch.optim.Adamax(groups, lr=0.1),
}
FIRST = """
import torch, torch_pjrt
few = [torch.nn.Parameter(torch.ones(size, device="pjrt")) for size in (2, 3)]
optimizer = torch.optim.Adam([{"params": [p]} for p in few])
step = torch.compile(optimizer.step)
for _ in range(2):
    for p in few:
        p.grad = torch.ones_like(p)
    step()
print([optimizer.state[p]["step"].item() for p in few])
"""


def parameters(device: str) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(size, device=device)) for size in (2, 3, 4)]


def trained(made: Any, device: str, *, is_compiled: bool) -> list[torch.Tensor]:
    """Returns parameters and state after some steps, in the first of which the last group has no gradients."""
    few = parameters(device)
    optimizer = made([{"params": [p], "lr": 0.1 / (1 + i)} for i, p in enumerate(few)])
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    step = torch.compile(optimizer.step, backend="pjrt") if is_compiled else optimizer.step
    for count in range(4):
        for p in few if count else few[:-1]:
            p.grad = torch.linspace(-1, count + 1, p.numel(), device=device)
        step()
        schedule.step()
    return [t.cpu() for p in few for t in (p.detach(), *optimizer.state[p].values()) if isinstance(t, torch.Tensor)]


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
@pytest.mark.parametrize("name", MADE)
@pytest.mark.sampled(4)
def test_groups_of_parameters(name: str, device: str) -> None:
    found = trained(MADE[name], device, is_compiled=True)
    torch.testing.assert_close(found, trained(MADE[name], "cpu", is_compiled=False), rtol=1e-5, atol=1e-5)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_the_first_that_is_compiled_in_a_process(server: Server) -> None:
    assert server.run(Job(FIRST))[0].out.strip() == "[2.0, 2.0]"
