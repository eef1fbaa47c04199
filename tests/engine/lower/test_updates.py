"""Updates are written over what they update: XLA copies no parameter for them (Note [Stored values])."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torch_pjrt
from tests.fresh import Job, Server

pytestmark = [pytest.mark.compiled, pytest.mark.host_memory]

STEP = """
import torch, torch_pjrt
from torch import nn

net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(3))).to("pjrt")
x = torch.randn(2, 32, 256, device="pjrt")
{optimizer}

@torch_pjrt.compile_step
def step():
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()

step()
torch.pjrt.synchronize()
"""
OPTIMIZERS = {
    "SGD": "optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=0.01)",
    "AdamW": "optimizer = torch.optim.AdamW(net.parameters())",
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_step_copies_no_weight(server: Server, optimizer: str, tmp_path: Path) -> None:
    environment = {"XLA_FLAGS": f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text", "TORCH_PJRT_CACHE": "0"}
    server.run(Job(STEP.format(optimizer=OPTIMIZERS[optimizer]), (), environment))
    texts = [path.read_text() for path in tmp_path.glob("*.cpu_after_optimizations.txt")]
    step = max(texts, key=len)
    assert step.count("torch_pjrt.aten") + step.count(" dot(") >= 8, "forward and backward"
    assert "input_output_alias" in step
    assert not re.findall(r"f32\[256,256\]\S* (?:copy|transpose)\(", step)


def changes_and_average(parameters: list[Tensor], update: Callable[[], None]) -> Tensor:
    old = [p.detach().clone() for p in parameters]
    update()
    with torch.no_grad():
        return torch.stack([(a - b).abs().sum() for a, b in zip(old, parameters, strict=True)])


AFTER: dict[str, Callable[[nn.Module, Tensor, Callable[[], None]], Tensor]] = {
    "old and new weights": lambda net, _, update: changes_and_average(list(net.parameters()), update),
    "a forward with the new weights": lambda net, x, update: (update(), net(x).detach().sum(1))[1],
    "a view of the old weights": lambda net, _, update: (net[0].weight.detach()[::2] * 2, update())[0],
    "an update of an update": lambda net, _, update: (update(), net[0].weight.data.div_(net[0].weight.data.norm()))[1],
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float64, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=str)
def test_dtypes_and_layouts(dtype: torch.dtype, order: torch.memory_format) -> None:
    w = torch.arange(4 * 8 * 32 * 32).reshape(4, 8, 32, 32).remainder(5).to(dtype).contiguous(memory_format=order)
    mine = w.to("pjrt")

    def change(w: Tensor) -> Tensor:
        product = w.flatten(0, 1).movedim(1, 2) @ w.flatten(0, 1)
        w *= 2
        w += 1
        return product

    run = torch_pjrt.compile_step(lambda: change(mine))
    for _ in range(2):
        torch.testing.assert_close(run().cpu(), change(w), rtol=1e-2, atol=1e-3)
        torch.testing.assert_close(mine.cpu(), w)


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("each", ["program", "graph"])
def test_all_readers_have_the_value_they_read(after: str, each: str) -> None:
    def run(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).to(device)
        x = torch.randn(64, 256).to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=0.01)

        def step() -> tuple[Tensor, Tensor]:
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), x) + sum(p.square().sum() for p in net.parameters()) * 1e-4
            loss.backward()
            return loss.detach(), AFTER[after](net, x, optimizer.step)

        run_step = torch_pjrt.compile_step(step) if device != "cpu" and each == "program" else step
        found = [value.cpu().clone() for _ in range(3) for value in run_step()]
        return found + [p.detach().cpu() for p in net.parameters()]

    for mine, expected in zip(run("pjrt"), run("cpu"), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)
