"""torch.compile of jagged nested tensors, whose ragged size is no number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import torch_pjrt

LENGTHS = (2, 3, 5)


def jagged(lengths: tuple[int, ...] = LENGTHS, device: str = "cpu") -> Tensor:
    torch.manual_seed(0)
    rows = [torch.randn(length, 4).to(device) for length in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def attention(x: Tensor) -> Tensor:
    heads = x.unflatten(-1, (2, 2)).transpose(1, 2)
    return nn.functional.scaled_dot_product_attention(heads, heads, heads)


def dense(x: Tensor) -> Tensor:
    return x.values() if x.is_nested else x


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "elementwise": lambda x: x.sin() * 2,
    "softmax": lambda x: x.softmax(-1),
    "padded": lambda x: torch.nested.to_padded_tensor(x, 0.0),
    "part": lambda x: x.unbind()[1] + 1,
    "attention": attention,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name: str) -> None:
    compiled = torch.compile(FUNCTIONS[name], backend="pjrt", fullgraph=name != "attention")  # Dynamo cuts that one
    for lengths in (LENGTHS, (1, 4)):
        x = jagged(lengths)
        expected, actual = FUNCTIONS[name](x), compiled(x)
        assert actual.is_nested == expected.is_nested
        torch.testing.assert_close(dense(actual), dense(expected), rtol=1e-4, atol=1e-5)
        if actual.is_nested and actual.shape[1] == x.shape[1]:
            torch.testing.assert_close((actual + x).values(), (expected + x).values(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "pjrt"])
def test_training(device: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4)).to(device)
    torch_pjrt.reset_metrics()

    def gradients(forward: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
        torch.nested.to_padded_tensor(forward(x), 0.0).square().sum().backward()
        found = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        return found

    compiled = torch.compile(model, backend="pjrt", fullgraph=True)
    for lengths in (LENGTHS, (1, 4), (3, 3, 1)):
        x = jagged(lengths, device)
        torch.testing.assert_close(gradients(compiled, x), gradients(model, x), rtol=1e-4, atol=1e-5)


def test_what_verify_sees() -> None:
    compiled = torch.compile(FUNCTIONS["elementwise"], backend="pjrt", options={"verify": True})
    x = jagged()
    torch.testing.assert_close(compiled(x).values(), x.values().sin() * 2)
