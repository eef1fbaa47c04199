"""Results of compiled calls that are views of an argument on the device that lies with gaps or overlaps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

import torch_pjrt

pytestmark = pytest.mark.compiled

ARGUMENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "every second": lambda base: base[1:, :, 1::2],
    "part of rows": lambda base: base[:, :, 2:5],
    "expanded": lambda base: base[:1, :, 3:].expand(4, 3, 3),
    "without elements": lambda base: base[:0, :, ::2],
}
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x,
    "an element of it": lambda x: x[-1:, 1],
    "transposed": lambda x: x.transpose(0, 2),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "windows": lambda x: x.unfold(2, 2, 1),
    "two dimensions in one": lambda x: x.flatten(0, 1),
    "flat, which copies": lambda x: x.reshape(-1),
    "of another dtype": lambda x: x.view(torch.int32),
}


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_views_of_arguments(argument: str) -> None:
    lie = ARGUMENTS[argument]
    for (name, view), is_written in product(VIEWS.items(), (False, argument != "expanded")):
        base = torch.arange(72.0).reshape(4, 3, 6)
        own = base.to("pjrt")
        expected, got = view(lie(base)), torch_pjrt.jit(view, (lie(own),))(lie(own))
        assert torch.equal(got.cpu(), expected), name
        if not is_written or name == "windows":
            continue
        got.zero_()
        expected.zero_()
        assert torch.equal(own.cpu(), base), name


@pytest.mark.parametrize("argument", ["every second", "part of rows", "expanded"])
def test_arguments_that_a_backward_needs(argument: str) -> None:
    base, weight = torch.randn(4, 3, 6), torch.randn(3, 2)
    gradients = []
    for device, compiled in (("cpu", False), ("pjrt", True)):
        x, w = ARGUMENTS[argument](base.to(device)), weight.to(device).detach().requires_grad_()
        call = torch.compile(lambda x, w: (x @ w).sin(), backend="pjrt") if compiled else lambda x, w: (x @ w).sin()
        call(x, w).sum().backward()
        gradients.append(w.grad.cpu())
    torch.testing.assert_close(*gradients)
