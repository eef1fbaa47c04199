"""Tangents of forward-mode automatic differentiation go through what is compiled, as they go through eager code."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import jvp


def sines(x: Tensor) -> Tensor:
    return x.sin() @ torch.full((3, 2), 0.5, device=x.device)


def written(x: Tensor) -> Tensor:
    x.mul_(x.detach() * 2)
    return x[0] * 3


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("f", [sines, written])
def test_tangents(f: Callable[[Tensor], Tensor], is_warm: bool, device: str) -> None:
    compiled = torch.compile(f, backend="pjrt")
    x = torch.linspace(-1, 1, 12).view(4, 3)
    if is_warm:
        compiled(x.to(device, copy=True))

    def pushed(f: Callable[[Tensor], Tensor], device: str) -> list[Tensor]:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x.to(device, copy=True), x.cos().to(device))
            values = [*forward_ad.unpack_dual(f(dual)), *forward_ad.unpack_dual(dual)]
            return [value.cpu() for value in values]

    torch.testing.assert_close(pushed(compiled, device), pushed(f, "cpu"))
    wanted = f(x.clone())  # the program is still there, for tensors without tangents
    torch.testing.assert_close(compiled(x.to(device, copy=True)).cpu(), wanted)


def test_jvp_of_a_compiled_function() -> None:
    compiled = torch.compile(sines, backend="pjrt")
    x = torch.linspace(-1, 1, 12).view(4, 3)
    compiled(x)
    torch.testing.assert_close(jvp(compiled, (x,), (x,)), jvp(sines, (x,), (x,)))
