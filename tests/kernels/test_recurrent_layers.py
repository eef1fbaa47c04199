"""Layers of LSTM, GRU and RNN as one call of the CPU's kernel in a program, compared with eager modules."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt

pytestmark = [pytest.mark.host_memory, pytest.mark.compiled]
BATCH, HIDDEN = 9, 64  # above the least size that goes to the kernel (rules.cpp)
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def layer_of(kind: type[nn.RNNBase], dtype: torch.dtype, hidden: int = HIDDEN) -> tuple[nn.RNNBase, nn.RNNBase]:
    torch.manual_seed(0)
    layer = kind(5, hidden, bidirectional=True).to(dtype)
    return layer, copy.deepcopy(layer).to("pjrt")


def results(layer: Any, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.requires_grad_()
    y, last = layer(x)
    ends = last if isinstance(last, tuple) else (last,)
    (y.square().sum() + sum((end**3).sum() for end in ends)).backward()
    return [t.detach().cpu() for t in (y, *ends, x.grad, *(p.grad for p in layer.parameters()))]


def calls(layer: nn.Module, x: torch.Tensor) -> list[str]:
    """Returns the recurrent layers that kernels ran."""
    with torch_pjrt.explain() as report:
        results(layer, x)
    lines = [line for line in str(report).splitlines() if "PyTorch's kernel" in line]
    return [line for line in lines if "recurrent_layer" in line or "lstm_layer" in line]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_values_and_gradients(kind: type[nn.RNNBase], dtype: torch.dtype) -> None:
    """16-bit results are compared with float32: eager rounds after each op, a kernel may round once."""
    layer, ours = layer_of(kind, dtype)
    narrow = dtype.itemsize == 2
    x = torch.randn(12, BATCH, 5).to(dtype)
    expected = results(layer.float() if narrow else layer, x.float() if narrow else x)
    got = results(ours, x.detach().to("pjrt"))
    assert {t.dtype for t in got} == {dtype}
    for a, b in zip(got, expected, strict=True):
        scale = max(1.0, b.abs().max().item())
        torch.testing.assert_close(a.to(b.dtype), b, rtol=0, atol=scale * (3e-2 if narrow else 1e-5))
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_special_values(kind: type[nn.RNNBase], dtype: torch.dtype) -> None:
    layer, ours = layer_of(kind, dtype)
    x = torch.randn(9, BATCH, 5).to(dtype)
    x[4, 0, 0], x[4, 1, 0], x[4, 2, 0], x[4, 3] = torch.nan, torch.inf, -torch.inf, 60000
    with torch.no_grad():
        expected, got = layer.float()(x.float())[0], ours(x.to("pjrt"))[0].cpu().float()
    assert torch.equal(got.isnan(), expected.isnan())
    assert expected.isnan().any()
    torch.testing.assert_close(got, expected, rtol=0, atol=3e-2, equal_nan=True)


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_wide_layers_of_bfloat16(kind: type[nn.RNNBase]) -> None:
    """They are large enough for a processor's products of bfloat16."""
    layer, ours = layer_of(kind, torch.bfloat16, 896 if kind is nn.GRU else 1536)
    x = torch.randn(5, BATCH, 5).bfloat16()
    for a, b in zip(results(ours, x.to("pjrt")), results(layer.float(), x.float()), strict=True):
        torch.testing.assert_close(a.float(), b, rtol=0, atol=4e-2 * max(1.0, b.abs().max().item()))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints(use_reentrant: bool) -> None:
    layer, ours = layer_of(nn.LSTM, torch.float32)
    x = torch.randn(6, BATCH, 5)
    for each, place in ((layer, "cpu"), (ours, "pjrt")):
        given = x.to(place).requires_grad_()
        y = torch.utils.checkpoint.checkpoint(lambda x, each=each: each(x)[0], given, use_reentrant=use_reentrant)
        y.square().sum().backward()
    for a, b in zip(ours.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-4, atol=1e-4)


def test_second_gradients() -> None:
    layer, ours = layer_of(nn.LSTM, torch.float32)
    x = torch.randn(6, BATCH, 5)

    def penalty(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
        return gradient.square().sum()

    expected = torch.autograd.grad(penalty(layer, x), list(layer.parameters()))
    got = torch.autograd.grad(penalty(ours, x.to("pjrt")), list(ours.parameters()))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-3, atol=1e-3 * b.abs().max().item())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_differentiable_gradients_of_operands_that_depend_on_each_other(kind: type[nn.RNNBase]) -> None:
    """Tied weights, and a state that is computed from the input and the weights."""
    layer, ours = layer_of(kind, torch.float32, 5)
    x = torch.randn(6, BATCH, 5)

    def gradients(layer: nn.RNNBase, x: torch.Tensor) -> list[torch.Tensor]:
        layer.weight_hh_l0 = layer.weight_ih_l0
        wanted = [x.detach().requires_grad_(), *layer.parameters()]
        states = layer(wanted[0], layer(wanted[0])[1])[0]
        first = torch.autograd.grad(states.square().sum(), wanted, create_graph=True)
        return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), wanted)]

    for a, b in zip(gradients(ours, x.to("pjrt")), gradients(layer, x), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-3, atol=1e-3 * b.abs().max().item())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_compiled_modules_on_cpu_tensors(bias: bool, batch_first: bool) -> None:
    """They call oneDNN as eager mode does, so values are the same bits."""
    torch.manual_seed(0)
    layer = nn.LSTM(5, HIDDEN, 2, bias=bias, batch_first=batch_first, bidirectional=True)
    ours, x = copy.deepcopy(layer), torch.randn(12, BATCH, 5)
    state = torch.randn(2, 4, 12 if batch_first else BATCH, HIDDEN)
    call = torch.compile(ours, backend="pjrt")
    for (y, (h, c)), (expected_y, (expected_h, expected_c)) in [(call(x, (*state,)), layer(x, (*state,)))]:
        for a, b in ((y, expected_y), (h, expected_h), (c, expected_c)):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        (y.sum() + c.sum()).backward()
        (expected_y.sum() + expected_c.sum()).backward()
    for a, b in zip(ours.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)


def test_compiled_modules_of_dynamic_sizes() -> None:
    layer, x = nn.LSTM(3, 4), torch.randn(7, 5, 3)
    call = torch.compile(layer, backend="pjrt", dynamic=True)
    for batch in (5, 3, 1, 4):  # a batch of one is a graph of its own
        y, _ = call(x[:, :batch])
        y.sum().backward()
        torch.testing.assert_close(y, layer(x[:, :batch])[0])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.LSTMCell])
def test_compiled_cells_without_biases(kind: Any) -> None:
    cell, x = kind(3, 4, bias=False), torch.randn(2, 3)
    got = torch.compile(copy.deepcopy(cell).to("pjrt"), backend="pjrt")(x.to("pjrt"))
    torch.testing.assert_close(got[0].cpu(), cell(x)[0])


def test_who_does_it() -> None:
    x = torch.randn(9, BATCH, 5, device="pjrt")
    small, large, lstm = (layer_of(*of)[1] for of in ((nn.GRU, x.dtype, 8), (nn.GRU, x.dtype), (nn.LSTM, x.dtype, 8)))
    assert calls(large, x) != []
    assert calls(small, x) == []
    assert all("lstm_layer" in line for line in calls(lstm, x))
    for layer in (large, lstm):
        shown = torch_pjrt.to_stablehlo(lambda x, layer=layer: layer(x)[0], x)
        assert "stablehlo.while" in shown  # runs on any platform
        assert "custom_call" not in shown


@pytest.mark.parametrize("hidden", [5, HIDDEN])
def test_gradients_through_nan_of_relu(hidden: int) -> None:
    """XLA's loop and the kernel agree."""
    torch.manual_seed(0)
    layer = nn.RNN(5, hidden, nonlinearity="relu")
    ours, x = copy.deepcopy(layer).to("pjrt"), torch.randn(12, BATCH, 5)
    gradients = []
    for each, place in ((layer, "cpu"), (ours, "pjrt")):
        given, hx = x.detach().to(place).requires_grad_(), torch.zeros(1, BATCH, hidden, device=place)
        hx[0, 0, 0], hx[0, 1, 0] = torch.nan, torch.inf
        each(given, hx)[0].nan_to_num(0, 0, 0).sum().backward()
        gradients.append(given.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.sampled(2)
def test_batched_gradients(kind: type[nn.RNNBase]) -> None:
    layer, ours = layer_of(kind, torch.float32)
    x, several = torch.randn(4, BATCH, 5), torch.randn(3, 4, BATCH, 2 * HIDDEN)
    gradients = [
        torch.autograd.grad(each(x.to(place))[0], list(each.parameters()), several.to(place), is_grads_batched=True)
        for each, place in ((layer, "cpu"), (ours, "pjrt"))
    ]
    for expected, got in zip(*gradients, strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-3, atol=1e-3)
