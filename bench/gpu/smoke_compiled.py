"""Compiled functions on tensors of a device: models, steps, streams."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from beside_cpu import difference, must, program
from torch import Tensor, nn
from torch.nn import functional as F
from worker import Setting, Skip, Values

import torch_pjrt


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 5))


def trained(device: str, wrap: Callable[[Any], Any] = lambda step: step, backend: str | None = None) -> list[Tensor]:
    model = network().to(device)
    forward = torch.compile(model, backend=backend) if backend else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    x, y = torch.randn(16, 12).to(device), torch.randint(0, 5, (16,)).to(device)
    step = wrap(step)
    losses = [step(x, y) for _ in range(4)]
    return [*losses, *model.parameters()]


@program
def a_compiled_model(setting: Setting) -> Values:
    """Runs inference and training of a small ResNet."""
    from models.catalogue import case

    found = {}
    results = []
    for device in ("cpu", setting.device):
        made = case("resnet18", small=True, batch=2)
        model = made.model.eval().to(device)
        run = torch.compile(model, backend="pjrt", fullgraph=True) if results else model
        output = made.output(run, tuple(x.to(device) for x in made.inputs))
        made.loss(output, made.target.to(device)).backward()
        results.append([output, *(p.grad for p in model.parameters() if p.grad is not None)])
    found["compiled"] = difference(results[1], results[0], 1e-2)
    return found


@program
def training(setting: Setting) -> Values:
    wanted = trained("cpu")
    return {
        "lazily": difference(trained("pjrt"), wanted, 2e-3),
        "compiled": difference(trained(setting.device, backend="pjrt"), wanted, 2e-3),
    }


@program
def compile_step(setting: Setting) -> Values:
    wanted = trained("cpu")
    return {
        device: difference(trained(device, torch_pjrt.compile_step), wanted, 2e-3)
        for device in {"pjrt", setting.device}
    }


@program
def autocast(setting: Setting) -> Values:
    model, x = network(), torch.randn(8, 12)
    wanted = model(x)
    found = {}
    for device in {"pjrt", setting.device}:
        moved = copy.deepcopy(model).to(device)
        run = moved if device == "pjrt" else torch.compile(moved, backend="pjrt")
        with torch.autocast(device, dtype=torch.bfloat16):
            got = run(x.to(device))
        must(got.dtype is torch.bfloat16, got.dtype)
        got.float().sum().backward()
        found[device] = difference(got.float(), wanted, 5e-2)
    return found


@program
def arguments_in_their_layout(setting: Setting) -> Values:
    """Passes views: transposed, with an odd offset, and empty."""
    wide = torch.arange(320.0).view(10, 32)
    call = torch.compile(lambda x: x * 2 + 1, backend="pjrt", dynamic=False)
    there, worst = wide.to(setting.device), 0.0
    for view in (lambda x: x, lambda x: x.t(), lambda x: x[:, 3:7], lambda x: x.view(-1)[1:50], lambda x: x[:0]):
        worst = max(worst, difference(call(view(there)), view(wide) * 2 + 1, 1e-6))
    return {"compiled": worst}


@program
def side_streams(setting: Setting) -> Values:
    """Checks that a call is in order with the current stream, and with the streams that wait for it."""
    if setting.device != "cuda" or not torch.version.cuda:
        raise Skip("the device has no streams of PyTorch's CUDA")
    call = torch.compile(lambda x: x @ x * 0.01 + 1, backend="pjrt")
    first = torch.randn(512, 512, device="cuda") * 0.1
    wanted = first.double()
    for _ in range(6):
        wanted = wanted @ wanted * 0.01 + 1
    call(first)
    side, worst = torch.cuda.Stream(), 0.0
    for _ in range(5):
        x = first.clone()
        for i in range(6):
            if i % 2:
                side.wait_stream(torch.cuda.default_stream())
                with torch.cuda.stream(side):
                    x = call(x)
            else:
                torch.cuda.default_stream().wait_stream(side)
                x = call(x)
        side.synchronize()
        worst = max(worst, difference(x, wanted, 1e-3))
    return {"compiled": worst}


@program
def a_cuda_graph_is_refused(setting: Setting) -> Values:
    if setting.device != "cuda" or not torch.version.cuda:
        raise Skip("PyTorch has no CUDA here")
    call = torch.compile(lambda x: x + 1, backend="pjrt")
    x = torch.ones(4, device="cuda")
    call(x)
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            call(x)
    except RuntimeError as error:
        must("can't be part of a CUDA graph" in str(error), error)
    else:
        raise AssertionError("it was captured")
    return {"compiled": difference(call(x), torch.full((4,), 2.0), 0.0)}
