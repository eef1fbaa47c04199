"""Functions that return their input, or a view of it, if they have nothing to do: a write to the result is one to the
input, on the device and compiled, as in eager mode. Arguments that share memory in some calls and not in others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt

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
@pytest.mark.sampled(2)
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


def first_and_third(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:4], x[2:6]


# Two arguments of four elements, made of twelve.
PAIRS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    "apart": lambda x: (x[:4].clone(), x[:4].clone()),
    "slices apart": lambda x: (x[:4], x[4:8]),
    "the same view": lambda x: (x[:4], x[:4]),
    "the same tensor": lambda x: (x[:4],) * 2,
    "overlapping": first_and_third,
    "overlapping elsewhere": lambda x: first_and_third(x[1:]),
    "overlapping more": lambda x: (x[:4], x[1:5]),
    "overlapping backwards": lambda x: first_and_third(x)[::-1],
    "of two storages": lambda x: (x[:4], torch.from_dlpack(x)[1:5] if x.device.type == "cpu" else x[1:5]),
}


def updates(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = b * 2
    a.add_(1)
    return (y + a * b) * w


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("first", ["apart", "slices apart", "the same tensor", "overlapping"])
@pytest.mark.filterwarnings("ignore:.*share memory otherwise")
def test_arguments_that_share_memory_in_some_calls(first: str, device: str, trains: bool) -> None:
    def called(f: Callable[..., torch.Tensor], pair: str) -> list[Any]:
        x = torch.arange(1.0, 13.0).to(device)
        w = torch.full((4,), 2.0, device=device, requires_grad=trains)
        y = f(*PAIRS[pair](x), w)
        if trains:
            y.sum().backward()
        return [x.tolist(), y.tolist(), w.grad.tolist() if w.grad is not None else None]

    torch._dynamo.reset()
    f = torch.compile(updates, backend="pjrt")
    for pair in (first, *PAIRS, first):
        assert called(f, pair) == called(updates, pair), pair


@pytest.mark.filterwarnings("ignore:.*share memory otherwise")
def test_columns_of_one_matrix_stay_compiled() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.mul_(2)
        return a + b

    def in_eager() -> int:
        count: int = torch_pjrt.metrics()["host_fallbacks"].get("shared memory", 0)
        return count

    def same_as_f(columns: slice, others: slice) -> None:
        x = torch.arange(24.0).reshape(4, 6)
        y = x.clone()
        assert compiled(x[:, columns], x[:, others]).tolist() == f(y[:, columns], y[:, others]).tolist()
        assert x.tolist() == y.tolist()

    compiled = torch.compile(f, backend="pjrt")
    compiled(torch.ones(4, 6)[:, :3], torch.ones(4, 6)[:, :3])
    before = in_eager()
    same_as_f(slice(3), slice(3, 6))
    assert in_eager() == before
    same_as_f(slice(3), slice(1, 4))
    assert in_eager() == before + 1
    with torch_pjrt.strict_mode(), pytest.raises(RuntimeError, match=r"'a' and 'b' share memory otherwise.*clone\(\)"):
        same_as_f(slice(3), slice(1, 4))


@pytest.mark.parametrize("device", DEVICES)
def test_the_backward_reads_old_values_of_what_the_forward_updates(device: str) -> None:
    def f(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        part = a[1:]
        y = (a * 2)[1:] + part.floor()
        a.add_(1)
        return (y + part * a[1:]) * w

    def called(f: Callable[..., torch.Tensor]) -> list[Any]:
        a, w = torch.arange(1.0, 5.0, device=device), torch.full((3,), 2.0, device=device, requires_grad=True)
        y = f(a, w)
        y.sum().backward()
        assert w.grad is not None
        return [a.tolist(), y.tolist(), w.grad.tolist()]

    assert called(torch.compile(f, backend="pjrt")) == called(f)
