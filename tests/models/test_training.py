"""The code around a training step: schedules, accumulation, averaging, the last batch of an epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

import torch_pjrt
from tests.models.closeness import assert_all_as_close

Parameters = Iterable[nn.Parameter]
OPTIMIZERS: dict[str, Callable[[Parameters], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adamw-single": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False),
}
SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]] = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
    "warmup": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=3), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)],
        milestones=[3],
    ),
    "one-cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=6),
}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def on_all(train: Callable[[nn.Module, torch.Tensor, torch.Tensor], nn.Module]) -> None:
    """Runs `train(model, x, y)` in float32, in float64 and in strict mode on the device, and compares the results."""
    model = network()
    x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))
    eager = train(copy.deepcopy(model), x, y)
    true = train(copy.deepcopy(model).double(), x.double(), y)
    with torch_pjrt.strict_mode():
        device = train(copy.deepcopy(model).to("pjrt"), x.to("pjrt"), y.to("pjrt"))
    states = [[*m.named_parameters(), *m.named_buffers()] for m in (device, eager, true)]
    assert_all_as_close("afterwards,", *states)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_varies_does_not_compile(optimizer: str) -> None:
    """A learning rate that changes each step, the optimizer's step count, dropout: no compile after the second step."""
    model = nn.Sequential(network(), nn.Dropout(0.5)).to("pjrt")
    o = OPTIMIZERS[optimizer](model.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(o, 0.9)
    x, y = torch.randn(4, 8).to("pjrt"), torch.randint(0, 4, (4,)).to("pjrt")
    for number in range(5):
        step(model, o, x, y)
        schedule.step()
        if number == 1:
            torch_pjrt.reset_metrics()
    assert torch_pjrt.metrics()["graphs_compiled"] == 0


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        schedule = SCHEDULES[name](optimizer)
        for number in range(6):
            step(model, optimizer, x, y)
            schedule.step()
            if number == 2:
                torch_pjrt.reset_metrics()
        if x.device.type == "pjrt":
            assert torch_pjrt.metrics()["graphs_compiled"] == 0
        return model

    on_all(train)


def test_schedule_that_reads_the_loss() -> None:
    def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
        for _ in range(4):
            schedule.step(step(model, optimizer, x, y))
        assert optimizer.param_groups[0]["lr"] < 0.1
        return model

    on_all(train)


def test_accumulation_and_clipping() -> None:
    def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for number in range(4):
            for half in (slice(0, 3), slice(3, 6)):
                (F.cross_entropy(model(x[half]), y[half]) / 2).backward()
            norm = clip_grad_norm_(model.parameters(), 0.5, error_if_nonfinite=number == 0)
            clip_grad_value_(model.parameters(), 0.2)
            optimizer.step()
            optimizer.zero_grad(set_to_none=number % 2 == 0)
        model.register_buffer("norm", norm)
        return model

    on_all(train)


@pytest.mark.parametrize("kind", ["mean", "exponential"])
def test_weight_averaging(kind: str) -> None:
    def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
        multi = get_ema_multi_avg_fn(0.9) if kind == "exponential" else None
        averaged = AveragedModel(model, multi_avg_fn=multi, use_buffers=kind == "exponential")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(4):
            step(model, optimizer, x, y)
            averaged.update_parameters(model)
        if kind == "mean":
            update_bn([x, x.flip(0)], averaged)
        return averaged

    on_all(train)


def test_gradient_scaler() -> None:
    """The second step's gradients overflow: it is skipped and the scale is halved; two good steps double it."""
    scales = []

    def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        scaler = torch.amp.GradScaler(x.device.type, init_scale=4.0, growth_interval=2)
        for number in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y) * (float("inf") if number == 1 else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return model

    on_all(train)
    assert scales == [4.0, 2.0, 2.0, 4.0, 4.0] * 3


def test_step_of_a_closure() -> None:
    """LBFGS evaluates the model as often as its line search needs, and decides on values that it reads."""

    def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
        model.eval()
        optimizer = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=3)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
        return model

    on_all(train)


@pytest.mark.compiled
def test_last_batch_of_an_epoch_compiles_once() -> None:
    """The smaller batch is one more program, although each epoch has another learning rate."""
    model = network().to("pjrt")
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    batches = [(torch.randn(n, 8), torch.randint(0, 4, (n,))) for n in (6, 6, 6, 2)]
    compiled = []
    for _ in range(4):
        torch_pjrt.reset_metrics()
        per_batch = []
        for x, y in batches:
            step(model, optimizer, x.to("pjrt"), y.to("pjrt"))
            per_batch.append(torch_pjrt.metrics()["graphs_compiled"])
        schedule.step()
        compiled.append(per_batch)
    full, last = compiled[0][2], compiled[0][3] - compiled[0][2]
    assert full == 1
    assert last == 1
    assert [epoch[-1] for epoch in compiled[1:]] == [0, 0, 0]
