"""Functions that return their input, or a view of it, if they have nothing to do: a write to the result is one to the
input, on the device and compiled, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

DEVICES = ("cpu", "pjrt")
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
    "dropout of nothing": lambda x: F.dropout(x, 0.0),
    "nn.Dropout": lambda x: torch.nn.Dropout(0.3).eval()(x),
    "dropout1d": lambda x: F.dropout1d(x, 0.5, training=False),
    "dropout2d": lambda x: F.dropout2d(x[None], 0.5, training=False),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, training=False),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.5, training=False),
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(x),
    "float": lambda x: x.float(),
    "type_as": lambda x: x.type_as(x),
    "reshape": lambda x: x.reshape(-1),
    "ravel": lambda x: x.ravel(),
    "expand_as": lambda x: x.expand_as(x),
    "atleast_3d": lambda x: torch.atleast_3d(x),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x)[0],
    "sum_to_size": lambda x: x.sum_to_size(x.shape),
    "positive": lambda x: +x,
    "resolve_conj": lambda x: x.resolve_conj(),
    "real": lambda x: torch.real(x),
    "as_tensor": lambda x: torch.as_tensor(x),
    "einsum": lambda x: torch.einsum("ij->ji", x),
    "tensor_split": lambda x: torch.tensor_split(x, 2)[0],
    "detach": lambda x: x.detach(),
    "pad by nothing": lambda x: F.pad(x, (0, 0)),
    "tile once": lambda x: x.tile(1, 1),
    "cat of one": lambda x: torch.cat([x]),
    "flip of no dimension": lambda x: x.flip(()),
}


def after(f: Callable[[Any], Any], device: str) -> tuple[Any, Any]:
    x = torch.arange(1.0, 13.0).reshape(3, 4).to(device)
    y = f(x)
    return x.tolist(), y.tolist()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_write_to_the_result(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = FUNCTIONS[name](x)
        y += y
        return y

    wanted = after(f, "cpu")
    assert after(f, "pjrt") == wanted
    for device in DEVICES:
        torch._dynamo.reset()
        assert after(torch.compile(f, backend="pjrt"), device) == wanted


@pytest.mark.parametrize("device", DEVICES)
def test_a_write_to_what_dropout_gives_has_its_gradient(device: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        z = x * 1
        y = F.dropout(z, 0.5, training=False)
        y += y
        return (z * x).sum()

    expected = torch.arange(3.0, requires_grad=True)
    f(expected).backward()
    x = torch.arange(3.0, device=device, requires_grad=True)
    torch.compile(f, backend="pjrt")(x).backward()
    assert x.grad is not None
    assert expected.grad is not None
    assert x.grad.tolist() == expected.grad.tolist()


def test_what_is_returned_is_the_argument() -> None:
    x = torch.ones(3)
    assert torch.compile(lambda x: F.dropout(x, 0.5, training=False), backend="pjrt")(x) is x
