"""Pools and group norms beside the library's convolutions, or of NHWC images, run as PyTorch's kernels in NHWC
layout."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.kernels.library import of_float32_convolutions

pytestmark = [pytest.mark.compiled, pytest.mark.host_memory]

LAST = torch.channels_last
ORDER = "dense<[1, 3, 2, 0]>"
Op = Callable[[torch.Tensor], torch.Tensor]
OPS: dict[str, Op] = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max, dilated, rounded up": lambda x: F.max_pool2d(x, (2, 3), (2, 1), (1, 0), (2, 1), ceil_mode=True),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (5, 7)),
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "adaptive average": lambda x: F.adaptive_avg_pool2d(x, (5, 7)),
    "global average": lambda x: F.adaptive_avg_pool2d(x, 1),
    "group norm": lambda x: F.group_norm(x, 1),
    "instance norm": lambda x: F.group_norm(
        x, x.shape[1], x.new_full(x.shape[1:2], 1.5), x.new_full(x.shape[1:2], 0.5)
    ),
}
SIZES = [(2, 16, 24, 20), (3, 1, 40, 40), (2, 2048, 2, 3), (1, 5, 33, 37)]


def calls(text: str, op: str) -> list[str]:
    return [line for line in text.splitlines() if f"aten::{op}(" in line]


def with_gradient(op: Op, x: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
    x = x.detach().requires_grad_()
    y = op(x)
    return [y.detach(), *torch.autograd.grad(y, x, gradient)]


def near(mine: torch.Tensor, expected: torch.Tensor) -> None:
    """Eager rounds averages of bfloat16 at each sum."""
    absolute = 5e-3 if expected.dtype == torch.bfloat16 else None
    relative = 2e-2 if expected.dtype == torch.bfloat16 else None
    torch.testing.assert_close(mine, expected, rtol=relative, atol=absolute)


def same(mine: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for a, b in zip(mine, expected, strict=True):
        near(a.cpu(), b)
        moving = [d for d in range(b.dim()) if b.shape[d] > 1]
        assert [a.stride(d) for d in moving] == [b.stride(d) for d in moving]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", OPS)
@pytest.mark.sampled(3)
def test_values(name: str, size: tuple[int, ...], dtype: torch.dtype) -> None:
    op = OPS[name]
    for wide in (torch.randn(size), torch.randn(*size[:3], 2 * size[3])[..., ::2]):
        x = wide.to(dtype).contiguous(memory_format=LAST)
        gradient = torch.randn(op(x).shape, dtype=dtype).contiguous(memory_format=LAST)
        expected = with_gradient(op, x, gradient)
        same(with_gradient(op, x.to("pjrt"), gradient.to("pjrt")), expected)
        compiled = torch.compile(op, backend="pjrt", dynamic=False)
        for a, b in zip(with_gradient(compiled, x, gradient), expected, strict=True):
            near(a, b)
        torch._dynamo.reset()


def test_special_values_and_indices() -> None:
    x = torch.randn(2, 8, 24, 20).contiguous(memory_format=LAST)
    x[0, 3, 5:9, 7], x[1, 0] = torch.nan, -torch.inf
    expected = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    for mine, right in zip(F.max_pool2d(x.to("pjrt"), 3, 2, 1, return_indices=True), expected, strict=True):
        torch.testing.assert_close(mine.cpu(), right, equal_nan=True)


def test_no_elements() -> None:
    x = torch.randn(0, 64, 24, 20).contiguous(memory_format=LAST)
    for op in OPS.values():
        assert op(x.to("pjrt")).shape == op(x).shape


def test_dispatch(programs: list[str]) -> None:
    x = torch.randn(4, 16, 24, 22)

    def asked(x: torch.Tensor) -> list[str]:
        F.max_pool2d(x.to("pjrt"), 3, 2).cpu()
        return calls(programs[-1], "max_pool2d_with_indices")

    assert asked(x) == []  # XLA runs it
    (call,) = asked(x.contiguous(memory_format=LAST))
    assert call.count(ORDER) == 3
    assert "stablehlo.transpose" not in programs[-1]
    assert asked(x[:1, :, :4].contiguous(memory_format=LAST)) == []  # small


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(32, 32, 3),
              nn.GroupNorm(4, 32), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(32, 64, 3), nn.Flatten(),
              nn.Linear(9216, 10))  # fmt: skip
    return nn.Sequential(*layers)


@of_float32_convolutions
def test_a_training_step_turns_no_images(programs: list[str]) -> None:
    """Images keep their layout through convolution, norm, relu and pool, in both directions."""
    torch._dynamo.reset()
    model, expected, x = network(), network().double(), torch.randn(8, 3, 64, 64)
    torch.compile(model, backend="pjrt", dynamic=False)(x).square().mean().backward()
    expected(x.double()).square().mean().backward()
    for mine, right in zip(model.parameters(), expected.parameters(), strict=True):
        assert mine.grad is not None
        assert right.grad is not None
        assert (mine.grad.double() - right.grad).norm() < 1e-3 * right.grad.norm() + 1e-6
    called = ("torch_pjrt::batch_norm_in_training(", "aten::convolution_backward(")
    forward, backward = ("".join(text for text in programs if op in text) for op in called)
    (pool,) = calls(forward, "max_pool2d_with_indices")
    (pool_backward,) = calls(backward, "max_pool2d_with_indices_backward")
    (norm,), (norm_backward,) = calls(forward, "native_group_norm"), calls(backward, "native_group_norm_backward")
    for line in (pool, pool_backward, norm, norm_backward):
        assert line.count(ORDER) >= 2 + (line is not norm)
    turned = re.compile(r"stablehlo\.transpose .*tensor<8x\d+x\d+x\d+x")
    assert not [line for line in forward.splitlines() + backward.splitlines() if turned.search(line)]
