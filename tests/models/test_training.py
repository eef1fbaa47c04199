"""ResNet-18 and a two-layer BERT: forward and training steps against CPU eager, and what they may cost."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import nn

import torch_pjrt
from tests.models.bert import bert
from tests.models.resnet import resnet18

Parameters = Iterable[nn.Parameter]
OPTIMIZERS: dict[str, Callable[[Parameters], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "sgd-single": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adamw-single": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False),
}


def resnet_case() -> tuple[nn.Module, tuple[torch.Tensor, ...], Callable[..., torch.Tensor]]:
    inputs = (torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,)))
    return resnet18(classes=10), inputs, lambda model, x, y: nn.functional.cross_entropy(model(x), y)


def bert_case() -> tuple[nn.Module, tuple[torch.Tensor, ...], Callable[..., torch.Tensor]]:
    model = bert(2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, vocab_size=1000)
    inputs = (torch.randint(0, 1000, (4, 16)), torch.randint(0, 2, (4,)))
    return model, inputs, lambda model, x, y: model(input_ids=x, labels=y).loss


CASES = {"resnet18": resnet_case, "bert": bert_case}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple:
    torch.manual_seed(0)
    return CASES[request.param]()


def test_forward(case: tuple) -> None:
    model, inputs, _ = case
    model.eval()
    device = copy.deepcopy(model).to("pjrt")
    with torch.no_grad():
        expected = model(inputs[0])
        torch_pjrt.reset_metrics()
        actual = device(inputs[0].to("pjrt"))
    if not isinstance(expected, torch.Tensor):
        expected, actual = expected.logits, actual.logits
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-4)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    assert torch_pjrt.metrics()["executions"] == 1


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training(case: tuple, optimizer: str) -> None:
    model, inputs, loss_of = case
    device = copy.deepcopy(model).to("pjrt")
    moved = [t.to("pjrt") for t in inputs]
    optimizers = [OPTIMIZERS[optimizer](m.parameters()) for m in (model, device)]
    torch_pjrt.reset_metrics()
    for step in range(4):
        losses = []
        for m, batch, o in zip((model, device), (inputs, moved), optimizers, strict=True):
            o.zero_grad()
            loss = loss_of(m, *batch)
            loss.backward()
            o.step()
            losses.append(loss)
        torch_pjrt.sync()
        if step == 0:
            for (name, p), q in zip(model.named_parameters(), device.parameters(), strict=True):
                assert p.grad is not None
                assert q.grad is not None
                scale = p.grad.abs().max().item()
                difference = (p.grad - q.grad.cpu()).abs().max().item()
                assert difference <= 2e-3 * scale + 1e-6, f"gradient of {name}: {difference} of {scale}"
        torch.testing.assert_close(losses[1].detach().cpu(), losses[0].detach(), rtol=5e-3, atol=1e-4)
        if step == 1:
            compiled = torch_pjrt.metrics()["graphs_compiled"]
    metrics = torch_pjrt.metrics()
    assert metrics["host_fallbacks"] == {}
    assert metrics["graphs_compiled"] == compiled, "a step after the second one compiled"


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "adamw-single"])
def test_what_varies_does_not_compile(optimizer: str) -> None:
    """A learning rate that changes each step, the optimizer's step count, dropout: no compile after the second step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4)).to("pjrt")
    o = OPTIMIZERS[optimizer](model.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(o, 0.9)
    x = torch.randn(4, 8).to("pjrt")
    for step in range(5):
        o.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        o.step()
        schedule.step()
        loss.item()
        if step == 1:
            compiled = torch_pjrt.metrics()["graphs_compiled"]
    assert torch_pjrt.metrics()["graphs_compiled"] == compiled
