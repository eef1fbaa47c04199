"""Parameters that a compiled forward changes by way of ``.data``: masked convolutions, clipped weights."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import torch_pjrt


def multiply(p: nn.Parameter) -> None:
    p.data *= 0.5


def clamp(p: nn.Parameter) -> None:
    p.data = p.data.clamp_(-0.1, 0.1)


def in_turn(p: nn.Parameter) -> None:
    p.data = p.data.mul_(2.0).sub_(0.1)


class Changing(nn.Module):
    def __init__(self, change: Callable[[nn.Parameter], None]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 3, 3)
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        self.change(self.conv.weight)
        return self.conv(x)


@pytest.mark.parametrize("change", [multiply, clamp, in_turn])
@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_data_written_in_place(change: Callable[[nn.Parameter], None], device: str) -> None:
    """AOTAutograd refuses the assignment that comes with it, where the parameter needs gradients."""
    expected = Changing(change)
    actual = copy.deepcopy(expected).to(device)
    address = actual.conv.weight.data_ptr()
    compiled = torch.compile(actual, backend="pjrt", fullgraph=True)
    optimizers = [torch.optim.SGD(each.parameters(), 0.001) for each in (expected, actual)]
    with torch_pjrt.strict_mode():
        for step in range(3):
            x = torch.full((1, 2, 5, 5), step + 1.0)
            results = expected(x), compiled(x.to(device))
            for result, optimizer in zip(results, optimizers, strict=True):
                optimizer.zero_grad()
                result.square().sum().backward()
                optimizer.step()
            torch.testing.assert_close(results[1].cpu(), results[0])
    torch.testing.assert_close(actual.conv.weight.detach().cpu(), expected.conv.weight.detach())
    assert device == "pjrt" or actual.conv.weight.data_ptr() == address


def test_data_of_another_tensor() -> None:
    """Is no such write: it stays an assignment."""

    def exchange(p: nn.Parameter, q: nn.Parameter) -> Tensor:
        p.data = q.data.mul_(2.0)
        return p.sum()

    results = []
    for function in (exchange, torch.compile(exchange, backend="pjrt")):
        p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.full((3,), 4.0))
        with torch.no_grad():
            value = function(p, q)
        results.append((value.item(), p.tolist(), q.tolist()))
    assert results[0] == results[1]
