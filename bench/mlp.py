"""A 50-layer MLP of width 8 at batch 2: it computes almost nothing, so the time is a framework's overhead."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from measure import Result, compare


def mlp(depth: int = 50, width: int = 8) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())))


def inference(device: str) -> Callable[[], object]:
    model, x = mlp().to(device).eval(), torch.ones(2, 8).to(device)

    @torch.no_grad()
    def work() -> torch.Tensor:
        return model(x).cpu()

    return work


def adam_step(device: str) -> Callable[[], object]:
    model, x = mlp().to(device).train(), torch.ones(2, 8).to(device)
    optimizer = torch.optim.Adam(model.parameters())

    def work() -> float:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return work


def measure() -> list[Result]:
    return [
        compare("MLP of 50 layers, inference", inference("pjrt"), inference("cpu"), 0.6),
        compare("MLP of 50 layers, Adam step", adam_step("pjrt"), adam_step("cpu"), 0.35),
    ]
