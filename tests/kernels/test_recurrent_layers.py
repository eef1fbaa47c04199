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
    return [line for line in str(report).splitlines() if "recurrent_layer" in line and "PyTorch's kernel" in line]


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


def test_who_does_it() -> None:
    x = torch.randn(9, BATCH, 5, device="pjrt")
    small, large = layer_of(nn.LSTM, torch.float32, 8)[1], layer_of(nn.LSTM, torch.float32)[1]
    assert calls(large, x) != []
    assert calls(small, x) == []
    shown = torch_pjrt.to_stablehlo(lambda x: large(x)[0], x)
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
