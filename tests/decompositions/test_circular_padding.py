"""Circular padding: PyTorch's values, gradients, strides and errors, and no write into an empty tensor."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt

pytestmark = pytest.mark.each_way
CASES = [
    ((2, 3, 5), (3, 1)),
    ((2, 3, 5), (5, 5)),
    ((2, 3, 5), (0, 0)),
    ((2, 3, 5), (-1, 2)),
    ((2, 3, 5), (-2, -2)),
    ((2, 1, 4, 5), (2, 0, 0, 3)),
    ((2, 3, 4, 5), (1, 2, -1, 3)),
    ((2, 3, 1, 4), (0, 2, 1, 1)),
    ((1, 2, 3, 4, 5), (1, 1, 2, 0, 3, 3)),
    ((0, 3, 5), (3, 1)),
    ((3, 5), (2, 1)),  # without a batch
    ((2, 3, 5), (1, 2, 2, 1)),
]


def padded(x: torch.Tensor, pad: tuple[int, ...]) -> torch.Tensor:
    return F.pad(x, pad, mode="circular")


@pytest.mark.parametrize(("shape", "pad"), CASES, ids=str)
def test_values_gradients_and_strides(shape: tuple[int, ...], pad: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    layouts = [x] if x.dim() != 4 else [x, x.to(memory_format=torch.channels_last)]
    for y in layouts:
        mine, theirs = y.to("pjrt").requires_grad_(), y.clone().requires_grad_()
        expected, got = padded(theirs, pad), padded(mine, pad)
        compiled = torch.compile(padded, backend="pjrt", dynamic=False)(y, pad)
        weights = torch.arange(expected.numel(), dtype=torch.float32).reshape(expected.shape)
        (expected * weights).sum().backward()
        (got * weights.to("pjrt")).sum().backward()
        for result in (got, compiled):
            assert torch.equal(result.detach().cpu(), expected.detach())
            assert result.stride() == expected.stride()
        assert torch.equal(mine.grad.cpu(), theirs.grad)  # type: ignore[union-attr]


def test_it_is_never_the_input() -> None:
    x = torch.randn(2, 3, 5, device="pjrt")
    y = padded(x, (0, 0))
    y.add_(1)
    assert torch.equal(y.cpu(), x.cpu() + 1)


@pytest.mark.parametrize("pad", [(6, 0), (0, 7), (-3, -3), (6, 0, 1, 1)])
def test_mistakes(pad: tuple[int, ...]) -> None:
    x = torch.randn(2, 3, 5)
    with pytest.raises(RuntimeError) as expected:
        padded(x, pad)
    with pytest.raises(RuntimeError) as raised:
        padded(x.to("pjrt"), pad)
    assert str(raised.value).splitlines()[0] == str(expected.value).splitlines()[0]


def test_it_is_concatenated() -> None:
    shown = torch_pjrt.to_stablehlo(lambda x: padded(x, (2, 1, 1, 2)), torch.randn(1, 2, 3, 4))
    assert shown.count("stablehlo.concatenate") == 2
    assert "dynamic_update_slice" not in shown
    assert "scatter" not in shown
