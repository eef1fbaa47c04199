"""FlopCounterMode counts on the device what it counts on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode


def attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x * 2, x + 1)


MODELS: dict[str, tuple[Callable[[], nn.Module | Callable[..., torch.Tensor]], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(64, 32), (8, 64)),
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3, bias=False)), (2, 5, 6)),
    "convolution": (lambda: nn.Conv2d(3, 8, 3), (2, 3, 9, 9)),
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_flops(name: str, train: bool) -> None:
    make, shape = MODELS[name]
    counts = []
    for device in ("cpu", "pjrt"):
        model = make().to(device)
        x = torch.randn(shape, device=device, requires_grad=train)
        with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(train):
            y = model(x).sum()
            if train:
                y.backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_flops_of_attention() -> None:
    """Attention has two products forward and five backward: the CPU's math path keeps results that ours recomputes."""
    x = torch.randn(2, 4, 16, 8, device="pjrt", requires_grad=True)
    product = 2 * 2 * 4 * 16 * 16 * 8
    with FlopCounterMode(display=False) as counter:
        y = attention(x)
    assert counter.get_total_flops() == 2 * product
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    assert counter.get_total_flops() == 5 * product
