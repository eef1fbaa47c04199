"""Float8 training with torchao: eager, torch.compile, compile_step, jit, and the loss of each beside the others. Where
matplotlib is installed, the curves are plotted to float8.png.

./dev python examples/float8.py [tensorwise|rowwise|rowwise_with_gw_hp] [device]
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt

STEPS = 100
WIDTHS = (32, 64, 16)


def losses(recipe: str, device: str, how: str) -> list[float]:
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(*each), nn.ReLU()) for each in pairwise(WIDTHS)]
    layers[-1] = layers[-1][0]
    plain = nn.Sequential(*layers)
    model = convert_to_float8_training(plain, config=Float8LinearConfig.from_recipe_name(recipe)).to(device)
    x, weight = torch.randn(256, WIDTHS[0]), torch.randn(WIDTHS[0], WIDTHS[-1])
    y = (x @ weight).tanh().to(device)
    x = x.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    forward: Any = torch.compile(model, backend="pjrt") if how == "torch.compile" else model

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def gradients(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            loss = F.mse_loss(model(x), y)
            return loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))

    def jitted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss, *found = program(x, y)
        for parameter, gradient in zip(model.parameters(), found, strict=True):
            parameter.grad = gradient
        optimizer.step()
        return loss

    program: Any = torch_pjrt.jit(gradients, [x, y]) if how == "jit" else None
    run: Any = {"compile_step": torch_pjrt.compile_step(step), "jit": jitted}.get(how, step)
    return [run(x, y).item() for _ in range(STEPS)]


def plot(curves: dict[str, list[float]], recipe: str) -> None:
    try:
        from matplotlib import pyplot
    except ImportError:
        return
    for how, curve in curves.items():
        pyplot.plot(curve, label=how)
    pyplot.title(f"float8 training, {recipe}")
    pyplot.xlabel("step")
    pyplot.ylabel("loss")
    pyplot.legend()
    pyplot.savefig("float8.png")
    print("plotted to float8.png")


def main() -> None:
    recipe = sys.argv[1] if len(sys.argv) > 1 else "tensorwise"
    device = sys.argv[2] if len(sys.argv) > 2 else "pjrt"
    curves = {"eager on the CPU": losses(recipe, "cpu", "eager")}
    curves |= {how: losses(recipe, device, how) for how in ("eager", "torch.compile", "compile_step", "jit")}
    for step in range(0, STEPS, 20):
        print(f"step {step:3d}  " + "  ".join(f"{how} {curve[step]:.5f}" for how, curve in curves.items()))
    wanted = curves["eager on the CPU"]
    for how, curve in curves.items():
        print(f"{how}: {curve[-1]:.5f} at the end, at most {max(map(abs, map(float.__sub__, curve, wanted))):.1e} away")
    plot(curves, recipe)


if __name__ == "__main__":
    main()
