"""Strides of results in compiled functions are eager's, on the CPU and on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

CONVOLUTIONS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "1d": (F.conv1d, (2, 4, 9), (6, 4, 3)),
    "2d": (F.conv2d, (2, 4, 9, 8), (6, 4, 3, 3)),
    "3d": (F.conv3d, (2, 4, 5, 6, 7), (6, 4, 3, 3, 3)),
    "transposed": (F.conv_transpose2d, (2, 4, 5, 6), (4, 6, 3, 3)),
    "one channel": (F.conv2d, (2, 1, 9, 8), (6, 1, 3, 3)),
}


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
@pytest.mark.parametrize("where", ["images", "weight", "both", "neither"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_have_eagers_layout(name: str, where: str, device: str) -> None:
    function, images, weight = CONVOLUTIONS[name]
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(len(images), torch.contiguous_format)
    formats = [last if where in (each, "both") else torch.contiguous_format for each in ("images", "weight")]
    x, w = (
        torch.randn(sizes, device=device).contiguous(memory_format=form).requires_grad_()
        for sizes, form in zip((images, weight), formats, strict=True)
    )

    def run(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
        y = function(x, w)
        return y, y.stride()

    def strides(call: Callable[..., Any]) -> list[Any]:
        y, seen = call(x, w)
        gradients = torch.autograd.grad(y.square().sum(), (x, w))
        return [y.stride(), seen, *(gradient.stride() for gradient in gradients)]

    assert strides(torch.compile(run, backend="pjrt", fullgraph=True)) == strides(run)
