"""Convolutions: many that XLA:CPU is slow at are sums over taps, matrix products, or two-dimensional ones there."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from torch_pjrt import _C

pytestmark = pytest.mark.each_way

Layer = nn.modules.conv._ConvNd


def gradients(layer: Layer, x: torch.Tensor) -> list[torch.Tensor]:
    """Returns the result, and the gradients of its squares' sum: of the input, the weight and the bias."""
    x = x.detach().requires_grad_()
    y = layer(x)
    return [y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])]


def check(layer: Layer, x: torch.Tensor, **tolerance: float) -> None:
    expected = gradients(layer, x)
    for result, reference in zip(gradients(copy.deepcopy(layer).to("pjrt"), x.to("pjrt")), expected, strict=True):
        torch.testing.assert_close(result.cpu(), reference, **tolerance)


def programs(layer: Layer, x: torch.Tensor) -> str:
    """Returns the StableHLO of the result and its gradients for XLA:CPU."""
    return _C.stablehlo(gradients(layer.to("pjrt"), x.to("pjrt")), for_cpu=True)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(("inputs", "outputs", "groups"), [(4, 4, 4), (6, 4, 2), (20, 4, 2), (4, 6, 1)])
@pytest.mark.sampled(4)
def test_groups(
    transposed: bool, stride: int, dilation: int, padding: int, inputs: int, outputs: int, groups: int
) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(inputs, outputs, 3, stride, padding, dilation=dilation, groups=groups).double()
    check(layer, torch.randn(2, inputs, 7, 8, dtype=torch.double))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 1, 1), ((2, 3, 1), (2, 1, 3), (0, 1, 0)), (2, 2, 0)])
def test_three_dimensions(transposed: bool, groups: int, kernel: int, stride: int, padding: int) -> None:
    kind = nn.ConvTranspose3d if transposed else nn.Conv3d
    layer = kind(32, 26, kernel, stride, padding, groups=groups).double()
    check(layer, torch.randn(2, 32, 5, 6, 7, dtype=torch.double))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (1, 2), (4, 4), ((2, 1), (2, 3)), ((3, 4), (3, 4))])
def test_tiles(transposed: bool, kernel: int, stride: int) -> None:
    """Patches neither overlap nor leave gaps, except behind the last one."""
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    check(kind(3, 5, kernel, stride).double(), torch.randn(2, 3, 13, 14, dtype=torch.double))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, 0, 1), (1, 2, 2)])
def test_few_positions(transposed: bool, stride: int, padding: int, dilation: int) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(160, 192, 3, stride, padding, dilation=dilation).double()
    check(layer, torch.randn(2, 160, 6, 7, dtype=torch.double))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("kernel", [1, 3])
def test_half_types(dims: int, groups: int, kernel: int) -> None:
    layer = [nn.Conv1d, nn.Conv2d, nn.Conv3d][dims - 1](4, 4, kernel, groups=groups).bfloat16()
    x = torch.randn(2, 4, *[5] * dims).bfloat16()
    check(layer, x, rtol=5e-2, atol=0.25)
    torch.testing.assert_close(copy.deepcopy(layer).to("pjrt")(x.to("pjrt")).cpu(), layer(x), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (nn.Conv2d(8, 8, 3, groups=8), (1, 8, 6, 6)),
        (nn.Conv2d(32, 64, 3, groups=8), (1, 32, 6, 6)),
        (nn.Conv2d(8, 16, 1), (2, 8, 12, 12)),
        (nn.Conv2d(3, 16, 4, stride=4), (2, 3, 48, 48)),
        (nn.ConvTranspose2d(8, 16, 2, stride=2), (2, 8, 12, 12)),
        (nn.Conv2d(160, 192, 3, 2, padding=1), (2, 160, 7, 7)),
    ],
    ids=["depthwise", "few to a group", "1x1", "patches", "transposed patches", "few positions"],
)
def test_they_are_no_convolutions_of_xla(layer: Layer, x: tuple[int, ...]) -> None:
    assert "stablehlo.convolution" not in programs(layer, torch.randn(x))


def test_groups_of_the_weights_gradient_are_of_features() -> None:
    """XLA:CPU runs batch groups as nested loops: 1.6 s for a layer of ResNeXt, which takes 6 ms with feature groups."""
    text = programs(nn.Conv2d(64, 64, 3, groups=2), torch.randn(2, 64, 8, 8))
    assert "batch_group_count = 1" in text
    assert "batch_group_count = 2" not in text


def test_volumes_are_convolved_as_planes() -> None:
    text = programs(nn.Conv3d(4, 8, 3), torch.randn(2, 4, 6, 6, 6))
    assert text.count("stablehlo.convolution") == 3
    assert "[b, f, 0, 1, 2]" not in text


def test_all_taps_of_a_weight_gradient_are_one_reduction() -> None:
    layer = nn.Conv2d(8, 8, 7, padding=3, groups=8, bias=False)
    x = torch.randn(2, 8, 12, 12)
    layer(x).square().sum().backward()
    on_device = copy.deepcopy(layer).to("pjrt")
    on_device.zero_grad()
    (gradient,) = torch.autograd.grad(on_device(x.to("pjrt")).square().sum(), [on_device.weight])
    assert _C.stablehlo([gradient], for_cpu=True).count('"stablehlo.reduce"(') == 1
    torch.testing.assert_close(gradient.cpu(), layer.weight.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kernel", [1, 2, 3])
@pytest.mark.cpu_arithmetic
def test_a_bias_is_added_before_half_types_are_rounded(kernel: int, transposed: bool) -> None:
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer, x = kind(16, 8, kernel, stride=kernel).bfloat16(), torch.randn(2, 16, 6, 6).bfloat16()
    exact = copy.deepcopy(layer).double()(x.double()).bfloat16()
    assert (layer.to("pjrt")(x.to("pjrt")).cpu() != exact).float().mean() < 0.01
