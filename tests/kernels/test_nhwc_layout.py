"""Note [NHWC layout]: 16-bit images in NHWC layout as a program's arguments and results."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tests.kernels.library import HAS_BF16_DOTS

pytestmark = [pytest.mark.compiled, pytest.mark.host_memory]

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
CASES = [
    ((2, 3, 4, 5), torch.bfloat16),
    ((2, 3, 4, 5), torch.float16),
    ((2, 3, 4, 5, 6), torch.bfloat16),
    ((2, 1, 4, 5), torch.bfloat16),
    ((0, 3, 4, 5), torch.bfloat16),
    ((16, 32, 56, 56), torch.bfloat16),
]


def drawn(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes).bfloat16()


def orders(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x
    yield x.to(memory_format=LAST[x.dim()])


def several(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.relu(x * 2 + y), x.sum(1), x.mT * 2, x + 1


def same(mine: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    for a, b in zip(mine, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b)
        moving = [d for d in range(b.dim()) if b.shape[d] > 1 and b.numel()]
        assert [a.stride(d) for d in moving] == [b.stride(d) for d in moving]


@pytest.mark.parametrize(("size", "dtype"), CASES)
@pytest.mark.sampled(2)
def test_values(size: tuple[int, ...], dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(several, backend="pjrt", dynamic=False)
    for x in orders(torch.randn(size).to(dtype)):
        for y in orders(torch.randn(size).to(dtype)):
            expected = several(x, y)
            same(compiled(x, y), expected)
            same(several(x.to("pjrt"), y.to("pjrt")), expected)


def test_what_is_written_over() -> None:
    """A result overwrites an argument's memory, whether their layouts are equal or not."""
    for x in orders(drawn(4, 8, 16, 16)):
        mine, turned = x.to("pjrt"), x.to("pjrt")
        for _ in range(3):
            mine.mul_(2).add_(1)
            turned = turned.mT.contiguous()
            torch.pjrt.synchronize()
        expected = x
        for _ in range(3):
            expected = expected * 2 + 1
        torch.testing.assert_close(mine.cpu(), expected)
        torch.testing.assert_close(turned.cpu(), x.mT)


def test_the_program_takes_and_gives_their_layout(programs: list[str]) -> None:
    x = drawn(4, 8, 16, 16).to(memory_format=torch.channels_last)
    torch.compile(lambda x: x + 1, backend="pjrt")(x)
    assert programs[-1].count('mhlo.layout_mode = "{1,3,2,0}"') >= 2
    assert "stablehlo.transpose" not in programs[-1]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(8, 32, 3, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers).bfloat16()


@pytest.mark.skipif(not HAS_BF16_DOTS, reason="oneDNN has no instructions for bfloat16 here: convolutions are XLA's")
def test_what_is_kept_for_the_backward_has_the_layout_of_convolutions(programs: list[str]) -> None:
    torch._dynamo.reset()
    model, exact, x = network(), network().double(), drawn(4, 8, 40, 40)
    torch.compile(model, backend="pjrt")(x).float().square().mean().backward()
    exact(x.double()).square().mean().backward()
    for mine, right in zip(model.parameters(), exact.parameters(), strict=True):
        assert mine.grad is not None
        assert right.grad is not None
        assert (mine.grad.double() - right.grad).norm() < 0.1 * right.grad.norm()
    backward = next(text for text in reversed(programs) if "aten::convolution_backward(" in text)
    assert (
        backward.count('bf16> {mhlo.layout_mode = "{1,3,2,0}"}') == 2
    )  # operands of the norm and of the second convolution
    assert backward.count("tensor<4x32x38x38xi1> {mhlo.layout_mode") == 1
    assert backward.count("tensor<4x32x17x17xi1> {mhlo.layout_mode") == 1


def test_what_the_user_gets_has_the_captured_layout() -> None:
    torch._dynamo.reset()
    model, x = network(), drawn(4, 8, 40, 40)
    assert torch.compile(model, backend="pjrt")(x).is_contiguous()
