"""Depthwise convolutions, which XLA:CPU is slow at: there they are sums over the taps of their kernels."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from torch_pjrt import _C


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padding", [0, 1])
def test_values_and_gradients(transposed: bool, stride: int, dilation: int, padding: int) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(4, 4, 3, stride, padding, dilation=dilation, groups=4).double()
    x = torch.randn(2, 4, 7, 8, dtype=torch.double, requires_grad=True)
    expected = layer(x)
    expected.square().sum().backward()
    on_device = copy.deepcopy(layer).to("pjrt")
    on_device.zero_grad()
    y = x.detach().to("pjrt").requires_grad_()
    result = on_device(y)
    result.square().sum().backward()
    torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(y.grad.cpu(), x.grad)
    torch.testing.assert_close(on_device.weight.grad.cpu(), layer.weight.grad)


@pytest.mark.parametrize("dims", [1, 3])
def test_other_dimensions_and_half_types(dims: int) -> None:
    layer = {1: nn.Conv1d, 3: nn.Conv3d}[dims](4, 4, 3, padding=1, groups=4).bfloat16()
    x = torch.randn(2, 4, *[5] * dims, dtype=torch.bfloat16)
    result = copy.deepcopy(layer).to("pjrt")(x.to("pjrt"))
    torch.testing.assert_close(result.cpu(), layer(x), rtol=2e-2, atol=2e-2)


def test_they_are_no_convolutions_of_xla() -> None:
    layer = nn.Conv2d(8, 8, 3, groups=8).to("pjrt")
    assert "stablehlo.convolution" not in _C.stablehlo([layer(torch.randn(1, 8, 6, 6, device="pjrt"))], for_cpu=True)
    grouped = nn.Conv2d(8, 16, 3, groups=8).to("pjrt")
    assert "stablehlo.convolution" in _C.stablehlo([grouped(torch.randn(1, 8, 6, 6, device="pjrt"))], for_cpu=True)


def test_all_taps_of_a_weight_gradient_are_one_reduction() -> None:
    layer = nn.Conv2d(8, 8, 7, padding=3, groups=8, bias=False)
    x = torch.randn(2, 8, 12, 12)
    layer(x).square().sum().backward()
    on_device = copy.deepcopy(layer).to("pjrt")
    on_device.zero_grad()
    (gradient,) = torch.autograd.grad(on_device(x.to("pjrt")).square().sum(), [on_device.weight])
    assert _C.stablehlo([gradient], for_cpu=True).count('"stablehlo.reduce"(') == 1
    torch.testing.assert_close(gradient.cpu(), layer.weight.grad, rtol=1e-4, atol=1e-4)
