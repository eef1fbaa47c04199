"""Programs like those that were reported as wrong in PyTorch's exports to ONNX and by torch_xla."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import torch_pjrt


class Flagged(nn.Module):
    """Keywords in another order than the parameters, a constant among them (pytorch/pytorch#143732)."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 4), nn.Linear(3, 5)

    def forward(self, x1: torch.Tensor, x2: torch.Tensor, flag: bool = True) -> torch.Tensor:
        return torch.cat([self.one(x1), self.other(x2)], 1) * (1 if flag else 2)


class Masked(nn.Module):
    """An argument that is written through a view, and a mask that is not a buffer (#95050)."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = torch.tensor([True, False])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.view(3, 2).masked_fill_(self.mask.unsqueeze(0), torch.finfo(x.dtype).max)
        return x


class TiedByPassing(nn.Module):
    """A weight used directly and transposed (#127357)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(5, 5, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.encoder(x), self.encoder.weight.t())


class Constants(nn.Module):
    """Tensors that are neither parameters nor buffers, and tensors made in the forward (#110484)."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.tensor(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [torch.tensor(3), torch.tensor(4)]
        return x + self.a * made[0] + made[1]


class Branched(nn.Module):
    """One submodule in two branches (#137013), and a buffer of the root that is passed to a submodule (#127643)."""

    class Part(nn.Module):
        def forward(self, x: torch.Tensor, one: bool, table: torch.Tensor) -> torch.Tensor:
            return x + table if one else x + 2

    def __init__(self) -> None:
        super().__init__()
        self.part = Branched.Part()
        self.register_buffer("table", torch.ones(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(self.part(x + 3, True, self.table) + 4, False, self.table) + 5


class Counting(nn.Module):
    """Buffers that are written in place, and replaced (#117893)."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("last", torch.zeros(5))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.mean.mul_(0.5).add_(x.mean(0))
        before, self.last = self.last, x[0] * 2
        return x + self.mean / self.count - before


def writes_by_a_view(x: torch.Tensor) -> torch.Tensor:  # #112429
    x.view(5, 2, -1).add_(torch.arange(2.0)[:, None])
    x[:, x.size(0) :] = 0
    return x


def writes_to_a_copy(x: torch.Tensor) -> Any:  # #131679
    half, same = torch.ops.aten.to(x, dtype=torch.float16, copy=True), x.to(x.dtype, copy=True)
    return half.mul_(2), same.mul_(2), x


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "keywords in any order": (Flagged(), (torch.randn(1, 3),), {"flag": False, "x2": torch.randn(1, 3)}),
    "keywords alone": (lambda **kw: kw["one"] - kw["other"] * 2, (), {"other": torch.ones(2), "one": torch.zeros(2)}),
    "a dict": (lambda d: d["a1"] - d["a2"] * 2, ({"a2": torch.ones(2), "a1": torch.zeros(2)},), {}),  # #162618
    "arguments in another order": (
        lambda x, y: torch.cos(y) + torch.sin(x),
        (torch.ones(2), torch.zeros(2)),
        {},
    ),  # xla#5544
    "a view of an argument": (Masked(), (torch.randn(6),), {}),
    "views of an argument": (writes_by_a_view, (torch.randn(2, 10),), {}),
    "a copy of an argument": (writes_to_a_copy, (torch.randn(4),), {}),
    "an argument as a result": (lambda x: (torch.tensor(1.0), x), (torch.randn(1),), {}),  # #167848
    "a weight twice": (TiedByPassing(), (torch.randn(1, 5),), {}),
    "constants": (Constants(), (torch.tensor(1),), {}),
    "a submodule twice": (Branched(), (torch.randn(2, 5),), {}),
    "buffers": (Counting(), (torch.randn(2, 5),), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_reported_programs(tmp_path: Path, name: str) -> None:
    fn, args, kwargs = CALLS[name]
    clone = lambda call: pytree.tree_map_only(torch.Tensor, torch.clone, call)  # noqa: E731
    torch_pjrt.export(fn, *clone((args, kwargs))).save(tmp_path / "it.pjrt", form="text")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    for _ in range(3):
        given, expected = clone((args, kwargs)), clone((args, kwargs))
        with torch.no_grad():
            torch.testing.assert_close(program(*given[0], **given[1]), fn(*expected[0], **expected[1]))
        torch.testing.assert_close(given, expected)
    if isinstance(fn, nn.Module):
        for key, value in program.state().items():
            torch.testing.assert_close(value, fn.state_dict().get(key, value))


def test_arguments_that_share_memory(tmp_path: Path) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    torch_pjrt.export(f, (torch.ones(2), torch.ones(2))).save(tmp_path / "it.pjrt", form="text")
    program = torch_pjrt.load(tmp_path / "it.pjrt")
    whole, array = torch.ones(4), np.ones(2, np.float32)
    on_device = torch.ones(2, device="pjrt")
    for args in ((whole[:2], whole[1:3]), (whole[1:3], whole[:2]), (array, array), (on_device, on_device)):
        with pytest.raises(RuntimeError, match=r"arguments 'x' and 'y' share memory.*pass a clone\(\) of one"):
            program(*args)
    assert whole.tolist() == [1, 1, 1, 1]
    assert program(whole[:2], whole[2:]).tolist() == [3, 3]
    assert whole.tolist() == [2, 2, 1, 1]
    long = torch.ones(100, device="pjrt")  # made beside others, at the next address of the device
    apart = [torch.ones(100, device="pjrt") for _ in range(3)]
    torch_pjrt.export(f, (torch.ones(100), torch.ones(100))).save(tmp_path / "long.pjrt", form="text")
    assert all(bool((torch_pjrt.load(tmp_path / "long.pjrt")(each, long) == 3).all()) for each in apart)
