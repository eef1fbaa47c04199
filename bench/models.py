"""ResNet-18 and a two-layer BERT, batch 4, forward and training step, against the same StableHLO through bare PJRT.

The program and its arguments are those of the step that was just run, so both do the same work. Eager CPU is shown for
information.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import torch_pjrt
from machine import plugin_path
from measure import Result, compare
from models.bert import bert
from models.resnet import resnet18
from torch_pjrt import _C

BATCH = 4
TARGET = 1.1

Make = Callable[[str], tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]]


def resnet(device: str) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    torch.manual_seed(0)
    model = resnet18().to(device)
    images = torch.randn(BATCH, 3, 224, 224).to(device)
    return model, lambda m: m(images)


def two_layer_bert(device: str) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    torch.manual_seed(0)
    model = bert().to(device)
    tokens = torch.randint(0, 30522, (BATCH, 128)).to(device)
    return model, lambda m: m(input_ids=tokens).logits


def forward(make: Make, device: str) -> Callable[[], object]:
    model, call = make(device)
    model.eval()

    @torch.no_grad()
    def work() -> torch.Tensor:
        return call(model).cpu()

    return work


def train(make: Make, device: str) -> Callable[[], object]:
    model, call = make(device)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def work() -> float:
        optimizer.zero_grad()
        loss = call(model).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return work


def bare(step: Callable[[], object]) -> Callable[[], object]:
    """The program that `step` ran last, with its arguments, and nothing of ours around it."""
    for _ in range(3):
        before = torch_pjrt.metrics()["executions"]
        step()
    if (executions := torch_pjrt.metrics()["executions"] - before) != 1:
        raise RuntimeError(f"a step ran {executions} programs; the comparison needs it to be one")
    text, arguments = _C._bench_last_program()
    program = _C.BareProgram(text, plugin_path())
    return lambda: program.execute(arguments)


def measure() -> list[Result]:
    results = []
    for name, make in (("ResNet-18", resnet), ("BERT, 2 layers", two_layer_bert)):
        for kind, build in (("forward", forward), ("training step", train)):
            title = f"{name}, {kind}"
            ours = build(make, "pjrt")
            results.append(compare(title, ours, bare(ours), TARGET, against="bare PJRT", rounds=15))
            results.append(compare(title, ours, build(make, "cpu"), None, rounds=5, warm=1))
    return results
