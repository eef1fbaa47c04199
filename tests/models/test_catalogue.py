"""Every model of the catalogue: evaluation and training steps as on the CPU, without the host, compiled once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

import torch_pjrt
from models.catalogue import CATALOGUE, Case, case
from tests.models.closeness import assert_all_as_close, assert_as_close, assert_as_close_after_steps

Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

# Each optimizer with and without foreach, over the models.
OPTIMIZERS: dict[str, Make] = {
    "resnet18": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "resnet50": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=1e-4, foreach=False),
    "resnext50": lambda p: torch.optim.Adagrad(p, 0.01),
    "alexnet": lambda p: torch.optim.Adam(p, foreach=False),
    "mobilenet_v2": lambda p: torch.optim.RMSprop(p, 1e-3, momentum=0.9, weight_decay=1e-5),
    "mnasnet": lambda p: torch.optim.SGD(p, 0.05),
    "squeezenet": lambda p: torch.optim.Adam(p, amsgrad=True),
    "vgg16": lambda p: torch.optim.SGD(p, 0.05, foreach=False),
    "vit": lambda p: torch.optim.AdamW(p),
    "bert": lambda p: torch.optim.AdamW(p, foreach=False),
    "gpt2": lambda p: torch.optim.AdamW(p, betas=(0.9, 0.95), weight_decay=0.1, foreach=True),
    "llama": lambda p: torch.optim.AdamW(p, fused=False),
    "lstm": lambda p: torch.optim.SGD(p, 1.0),
    "gru": lambda p: torch.optim.Adagrad(p, foreach=False),
    "unet": lambda p: torch.optim.Adam(p, foreach=True),
    "dlrm": lambda p: torch.optim.Adagrad(p, 0.1, foreach=True),
    "policy": lambda p: torch.optim.RMSprop(p, centered=True, foreach=False),
}
CLIPPED = {"llama", "lstm", "gru", "policy"}
STEPS = 3


def double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def nudged(x: Any) -> Any:
    """Returns inputs that differ in their last bits, so that the computation rounds differently."""
    return x * (1 + 2e-7) if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def farther(a: torch.Tensor, b: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Returns the less accurate of two losses of the CPU's, because one may be right by chance."""
    return max(a, b, key=lambda loss: (loss.double() - true).abs().item())


class Run:
    """One of the three computations that are compared: eager, eager in float64, and the device."""

    def __init__(self, name: str, made: Case, move: Callable[[Any], Any]) -> None:
        self.name, self.loss = name, made.loss
        self.model = move(copy.deepcopy(made.model))
        if hasattr(self.model, "tie_weights"):
            self.model.tie_weights()
        self.inputs, self.target = tuple(map(move, made.inputs)), move(made.target)
        self.optimizer = OPTIMIZERS[name](self.model.parameters())

    def evaluate(self) -> torch.Tensor:
        self.model.eval()
        with torch.no_grad():
            return Case.output(self.model, self.inputs)

    def step(self) -> torch.Tensor:
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.loss(Case.output(self.model, self.inputs), self.target)
        loss.backward()
        if self.name in CLIPPED:
            clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        return loss.detach()

    def gradients(self) -> list[tuple[str, torch.Tensor | None]]:
        return [(name, p.grad) for name, p in self.model.named_parameters()]

    def state(self) -> list[tuple[str, torch.Tensor]]:
        return [*self.model.named_parameters(), *self.model.named_buffers()]


def test_every_model_has_an_optimizer() -> None:
    assert OPTIMIZERS.keys() == CATALOGUE.keys()


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.sampled(4)
def test_model(name: str) -> None:
    made = case(name, small=True)
    to_float64 = lambda x: x.double() if isinstance(x, nn.Module) else double(x)  # noqa: E731
    eager, other, true = (Run(name, made, move) for move in (lambda x: x, nudged, to_float64))
    with torch_pjrt.strict_mode():
        device = Run(name, made, lambda x: x.to("pjrt"))
        torch_pjrt.reset_metrics()
        assert_as_close("output", device.evaluate(), eager.evaluate(), true.evaluate())
        assert torch_pjrt.metrics()["executions"] == 1
        for step in range(STEPS):
            if step == 2:
                torch_pjrt.reset_metrics()
            actual, own, near, exact = (run.step() for run in (device, eager, other, true))
            assert_as_close(f"loss {step}", actual, farther(own, near, exact), exact)
            if step == 0:
                assert_all_as_close("gradient of", device.gradients(), eager.gradients(), true.gradients())
        metrics = torch_pjrt.metrics()
        assert metrics["graphs_compiled"] == 0, "the third step compiled"
        assert metrics["executions"] == 1
        assert_as_close_after_steps("after the steps,", device.state(), eager.state(), other.state(), true.state())
        assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_dropout_draws_anew_each_step_without_compiling() -> None:
    """With dropout a model trains in the same program each time, and no two steps drop the same elements."""
    made = case("vgg16", small=True, dropout=True)
    device = Run("vgg16", made, lambda x: x.to("pjrt"))
    device.optimizer = torch.optim.SGD(device.model.parameters(), 0.0)
    losses = []
    for step in range(4):
        if step == 2:
            torch_pjrt.reset_metrics()
        losses.append(device.step().item())
    assert len(set(losses)) == 4
    assert torch_pjrt.metrics()["graphs_compiled"] == 0
