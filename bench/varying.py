"""Values that change from step to step must not recompile: a learning rate, a step counter, dropout."""

from __future__ import annotations

import torch
from torch import nn

import torch_pjrt
from measure import Result, count

STEPS = 10


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4)).to("pjrt")


def compiles_after_two(make_optimizer: object) -> int:
    """Returns the number of compiles in steps 3 to 12 of training with another learning rate at each step."""
    net = model()
    optimizer = make_optimizer(net.parameters())  # type: ignore[operator]
    x = torch.randn(8, 16).to("pjrt")
    before = 0
    for step in range(2 + STEPS):
        if step == 2:
            before = torch_pjrt.metrics()["graphs_compiled"]
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 / (1 + step)
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
    return torch_pjrt.metrics()["graphs_compiled"] - before


def step_counter() -> int:
    """Counts compiles for a Python number that counts steps, in the arithmetic itself."""
    x = torch.ones(4).to("pjrt")
    before = 0
    for step in range(2 + STEPS):
        if step == 2:
            before = torch_pjrt.metrics()["graphs_compiled"]
        (x * (step + 1) + 1.0 / (step + 1)).cpu()
    return torch_pjrt.metrics()["graphs_compiled"] - before


def measure() -> list[Result]:
    optimizers = {
        "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "AdamW": lambda p: torch.optim.AdamW(p, foreach=True),
        "AdamW, not foreach": lambda p: torch.optim.AdamW(p, foreach=False),
    }
    results = [
        count(f"{name}, lr by step, dropout: after step 2", compiles_after_two(make), 0, "compiles")
        for name, make in optimizers.items()
    ]
    return [*results, count("x * step + 1 / step: after step 2", step_counter(), 0, "compiles")]
