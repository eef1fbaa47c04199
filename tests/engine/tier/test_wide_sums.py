"""Interpreted convolutions of 16-bit floats sum in 32 bits and round once, like programs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.engine.tier.conftest import counts

pytestmark = pytest.mark.host_memory


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions(dtype: torch.dtype, transposed: bool) -> None:
    x = torch.randint(-9, 10, (2, 6, 7, 7)).to(dtype)
    weight = torch.randint(-9, 10, (6, 6, 3, 3)).to(dtype)
    bias = torch.tensor([0.5, 3, -0.25, 0, 1, 7]).to(dtype)
    convolution = F.conv_transpose2d if transposed else F.conv2d

    def results(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
        inputs = [t.requires_grad_() for t in (x, weight, bias)]
        y = convolution(*inputs, padding=1)
        return [y, *torch.autograd.grad(y.sign().detach().mul(y).sum(), inputs)]

    given = [t.cpu() for t in results(*(t.to("pjrt") for t in (x, weight, bias)))]
    exact = [t.to(dtype) for t in results(*(t.double() for t in (x, weight, bias)))]
    interpreted, compiled = counts()
    assert (interpreted >= 1, compiled) == (True, 0)
    torch.testing.assert_close(given, exact, rtol=0, atol=0)  # integers, which 32 bits sum exactly
