"""Recurrent layers on sequences: one loop for each layer and direction, with the CPU's values and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import torch_pjrt

pytestmark = pytest.mark.each_way

KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
OPTIONS: list[dict[str, Any]] = [
    {"num_layers": 1, "bias": True},
    {"num_layers": 1, "bias": False, "batch_first": True},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
]


def outputs(module: Any, layer: Any, x: torch.Tensor, *states: torch.Tensor) -> tuple[Any, Any]:
    x, *states = (t.detach().clone().requires_grad_() for t in (x, *states))
    y, last = module(x, tuple(states) if len(states) > 1 else states[0])
    ends = last if isinstance(last, tuple) else (last,)
    (y.square().sum() + sum((end**3).sum() for end in ends)).backward()
    return [y, *ends], [x.grad, *(s.grad for s in states), *(p.grad for p in layer.parameters())]


# An RNN differs from a GRU only in its cell.
OF_EACH_KIND = pytest.mark.parametrize(
    ("kind", "options"),
    [(kind, options) for kind in KINDS for options in (OPTIONS if kind in ("lstm", "gru") else OPTIONS[:1])],
)


def check(kind: str, options: dict[str, Any], place: str, wrap: Callable[[nn.Module], Any]) -> None:
    layer = KINDS[kind](5, 7, **options)
    ours = copy.deepcopy(layer).to(place)
    x = torch.randn(3, 9, 5)
    count = options["num_layers"] * (2 if options.get("bidirectional") else 1)
    states = [torch.randn(count, 3 if options.get("batch_first") else 9, 7) for _ in range(2 if kind == "lstm" else 1)]
    if not options.get("batch_first"):
        x, states = x.transpose(0, 1).contiguous(), [s[:, :3] for s in states]
    expected = outputs(layer, layer, x, *states)
    torch_pjrt.reset_metrics()
    got = outputs(wrap(ours), ours, x.to(place), *(s.to(place) for s in states))
    for a, b in zip((*got[0], *got[1]), (*expected[0], *expected[1]), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)
    assert [y.stride() for y in got[0]] == [y.stride() for y in expected[0]]
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@OF_EACH_KIND
@pytest.mark.sampled(2)
def test_values_and_gradients(kind: str, options: dict[str, Any]) -> None:
    check(kind, options, "pjrt", lambda layer: layer)


@OF_EACH_KIND
@pytest.mark.compiled
@pytest.mark.sampled(4)
def test_compiled(kind: str, options: dict[str, Any]) -> None:
    torch._dynamo.reset()
    check(kind, options, "cpu", lambda layer: torch.compile(layer, backend="pjrt", fullgraph=True))


def test_a_long_sequence_is_no_longer_program() -> None:
    layer = nn.LSTM(5, 7).to("pjrt")

    def calls(length: int) -> int:
        torch_pjrt.reset_metrics()
        layer(torch.randn(length, 2, 5, device="pjrt"))[0].sum().backward()
        torch_pjrt.sync()
        return int(torch_pjrt.metrics()["nodes_executed"])

    assert max(calls(30), calls(300)) < 60


@pytest.fixture
def layers() -> tuple[nn.LSTM, nn.LSTM, torch.Tensor]:
    layer = nn.LSTM(5, 7)
    return layer, copy.deepcopy(layer).to("pjrt"), torch.randn(9, 3, 5)


def test_gradients_of_gradients(layers: tuple[nn.LSTM, nn.LSTM, torch.Tensor]) -> None:
    def penalty(layer: nn.LSTM, x: torch.Tensor) -> list[Any]:
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        return [x.grad, *(p.grad for p in layer.parameters())]

    layer, ours, x = layers
    for got, expected in zip(penalty(ours, x.to("pjrt")), penalty(layer, x), strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_what_is_no_loop(layers: tuple[nn.LSTM, nn.LSTM, torch.Tensor]) -> None:
    layer, ours, x = layers
    for length in (1, 4, 5):
        torch.testing.assert_close(ours(x[:length].to("pjrt"))[0].cpu(), layer(x[:length])[0])
    torch.testing.assert_close(ours(x[:, 0].to("pjrt"))[0].cpu(), layer(x[:, 0])[0])
    with torch.inference_mode():
        torch.testing.assert_close(ours(x.to("pjrt"))[0].cpu(), layer(x)[0])


def test_function_transforms(layers: tuple[nn.LSTM, nn.LSTM, torch.Tensor]) -> None:
    layer, ours, x = layers
    layer(x)[0].sum().backward()
    gradients = grad(lambda p: functional_call(ours, p, (x.to("pjrt"),))[0].sum())(dict(ours.named_parameters()))
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(gradients[name].cpu(), parameter.grad, rtol=1e-4, atol=1e-5)


def test_mistakes(layers: tuple[nn.LSTM, nn.LSTM, torch.Tensor]) -> None:
    _, ours, x = layers
    with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size \(1, 3, 7\), got \[1, 2, 7\]"):
        ours(x.to("pjrt"), (torch.zeros(1, 2, 7, device="pjrt"), torch.zeros(1, 3, 7, device="pjrt")))
    states = [torch.zeros(1, 3, 7, device="pjrt")] * 2
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        torch.lstm(x[:, :, :4].to("pjrt"), states, list(ours.parameters()), True, 1, 0.0, False, False, False)


@pytest.mark.parametrize("sorted_by_length", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(2)
def test_packed_sequences(kind: str, sorted_by_length: bool) -> None:
    def program(layer: Any, device: str) -> list[Any]:
        y = x.to(device, copy=True).requires_grad_()
        packed, last = layer(pack_padded_sequence(y, lengths, enforce_sorted=sorted_by_length))
        ends = last if isinstance(last, tuple) else (last,)
        padded, _ = pad_packed_sequence(packed)
        (padded.square().sum() + sum((end**3).sum() for end in ends)).backward()
        return [padded, *ends, y.grad, *(p.grad for p in layer.parameters())]

    layer = KINDS[kind](5, 7, 2, bidirectional=True)
    ours = copy.deepcopy(layer).to("pjrt")
    x = torch.randn(9, 4, 5)
    lengths = torch.tensor([9, 6, 6, 2] if sorted_by_length else [3, 9, 1, 6])
    for got, expected in zip(program(ours, "pjrt"), program(layer, "cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_autocast(kind: str) -> None:
    """On the device a whole module is in the lower precision. Compiled for the CPU it follows PyTorch's list, which
    lacks GRU. Eager itself has bfloat16 only if oneDNN supports it on the processor."""
    layer = KINDS[kind](5, 7)
    x = torch.randn(9, 3, 5)
    exact = layer(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        compiled = torch.compile(layer, backend="pjrt")(x)[0]
    assert compiled.dtype == (torch.float32 if kind == "gru" else torch.bfloat16)
    with torch.autocast("pjrt", torch.bfloat16):
        on_device = copy.deepcopy(layer).to("pjrt")(x.to("pjrt"))[0]
    assert on_device.dtype == torch.bfloat16
    for got in (compiled, on_device.cpu()):
        torch.testing.assert_close(got.float(), exact, rtol=0.05, atol=0.02)


def test_a_captured_training_step() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent, self.last = nn.GRU(5, 7), nn.Linear(7, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.recurrent(x)[0][-1])

    reference = Model()
    model = copy.deepcopy(reference)
    losses: list[list[float]] = []
    for each, wrap in ((reference, lambda step: step), (model, torch_pjrt.compile_step)):
        optimizer = torch.optim.Adam(each.parameters(), 1e-2)

        def step(x: torch.Tensor, each: nn.Module = each, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = each(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        fast, generator = wrap(step), torch.Generator().manual_seed(0)
        losses.append([fast(torch.randn(9, 3, 5, generator=generator)).item() for _ in range(4)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    x = torch.randn(9, 3, 5)
    fast_forward = torch_pjrt.jit(model, (x,))
    with torch.no_grad():
        torch.testing.assert_close(fast_forward(x), model(x))
