"""A scalar on the CPU (a tensor without dimensions) among the device's tensors is passed by value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torch_pjrt

pytestmark = pytest.mark.each_way

DEVICE = "pjrt"

USES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, n: x + n,
    "addcmul": lambda x, n: torch.addcmul(x, x, n),
    "addcdiv": lambda x, n: torch.addcdiv(n, x, x + 1),
    "clamp": lambda x, n: x.clamp(n, n + 1),
    "clamp_": lambda x, n: x.clone().clamp_(max=n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([2], device=x.device), n),
    "index_put": lambda x, n: x.index_put((torch.tensor([2], device=x.device),), n),
    "lerp": lambda x, n: torch.lerp(x, x + 1, n),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "masked_fill_": lambda x, n: x.clone().masked_fill_(x > 1, n),
    "pow": torch.pow,
    "where": lambda x, n: torch.where(x > 1, n, x),
}


@pytest.mark.parametrize("name", USES)
def test_a_number(name: str) -> None:
    use, x = USES[name], torch.arange(4.0)
    for value in (0.5, 2.0, 3.0, 1.5):
        number = torch.tensor(value)
        torch.testing.assert_close(use(x.to(DEVICE), number).cpu(), use(x, number))
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
    assert torch_pjrt.metrics()["graphs_compiled"] <= 2  # a value that varies is an input
