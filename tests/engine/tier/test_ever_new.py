"""Programs whose graphs never recur: nothing is compiled for them, and nobody waits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torch_pjrt
from tests.engine.tier.conftest import counts
from tests.engine.tier.programs import DRAWS, PROGRAMS, drawn_batches, random_program
from torch_pjrt import _C

pytestmark = pytest.mark.host_memory


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    given = PROGRAMS[name]("pjrt")
    torch.testing.assert_close(given, PROGRAMS[name]("cpu"), check_device=False, rtol=1e-4, atol=1e-4)
    assert counts()[0] >= 5
    assert torch_pjrt.metrics()["compile_seconds"] == 0  # graphs that recur are compiled in the background


@pytest.mark.parametrize("name", DRAWS)
def test_batches(name: str) -> None:
    torch.testing.assert_close(drawn_batches("pjrt", name), drawn_batches("cpu", name))
    assert torch_pjrt.metrics()["compile_seconds"] == 0


def _in_place(n: int, device: str) -> torch.Tensor:
    x = torch.arange(n, device=device)
    x[1:3] += 7
    x.view(-1)[::2].mul_(3)
    return x.neg_()


def _views(n: int, device: str) -> torch.Tensor:
    x = torch.arange(6 * n, device=device).reshape(2, n, 3)
    return torch.cat([x.transpose(0, 2)[:, 1:], x.permute(2, 1, 0)[:, :1]], 1).flip(0)


SMALL: dict[str, Callable[[int, str], object]] = {
    "positions": lambda n, d: torch.arange(n, device=d).unsqueeze(0) + 3,
    "mask": lambda n, d: (torch.arange(n, device=d)[None] <= torch.arange(n, device=d)[:, None]).tril(),
    "tokens": lambda n, d: torch.cat([torch.zeros(1, n, dtype=torch.long, device=d), torch.tensor([[1]]).to(d)], 1),
    "in place, through views": _in_place,
    "views and strides": _views,
    "a view of a view's copy": lambda n, d: torch.arange(n, device=d)[2:].clone()[1:] + 0,
    "a view of one part's copy": lambda n, d: torch.arange(2 * n, device=d).split(n)[1].clone()[1:3] * 2,
    "several results": lambda n, d: list(torch.arange(n, device=d).remainder(3).sort(descending=True)),
    "another dtype": lambda n, d: torch.arange(n, dtype=torch.int32, device=d).view(torch.int16).to(torch.uint8).bool(),
    "sums": lambda n, d: torch.ones(n, 4, dtype=torch.int32, device=d).cumsum(0).sum(1, keepdim=True),
    "a dtype that is promoted": lambda n, d: torch.arange(n, dtype=torch.int16, device=d) * 70000 // 7,
    "nothing": lambda n, d: torch.zeros(0, n, dtype=torch.long, device=d) + 1,
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_small_graphs(name: str) -> None:
    for n in (4, 6, 10):
        given, expected = SMALL[name](n, "pjrt"), SMALL[name](n, "cpu")
        torch.testing.assert_close(given, expected, check_device=False, check_stride=True, rtol=0, atol=0)
    interpreted, compiled = counts()
    assert compiled == 0
    assert interpreted >= 3


def test_a_mistake_is_raised_when_the_result_is_read() -> None:
    x, index = torch.arange(4).to("pjrt"), torch.tensor([1, 7]).to("pjrt")
    wrong = x[index]
    with pytest.raises(IndexError, match="out of"):
        wrong.cpu()
    assert x[index.clamp(max=3)].tolist() == [1, 3]


def test_modes_see_each_call_once() -> None:
    class Calls(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    x = torch.arange(5, device="pjrt")
    with Calls() as calls:
        result = (x + 2).cpu()
    assert result.tolist() == [2, 3, 4, 5, 6]
    assert calls.names == ["add", "_to_copy"]
    assert counts() == (1, 0)


@pytest.mark.parametrize("seed", [1, 5])
def test_random_programs_in_either_tier(seed: int) -> None:
    """A coin decides for each graph whether it is interpreted or compiled: each tier continues the other's work."""
    choose = random.Random(seed)

    def write(x: torch.Tensor) -> None:
        x.mul_(2)
        x.view(-1)[1:].add_(1) if x.is_contiguous() else x.add_(3)

    for n in (5, 7):
        found, expected = random_program(seed, n, "pjrt"), random_program(seed, n, "cpu")
        for ours, cpus in zip(found, expected, strict=True):
            _C.set_compile_policy(choose.choice(["auto", "first"]))
            torch.testing.assert_close((ours + 0).cpu(), cpus + 0, rtol=1e-3, atol=1e-3, check_stride=True)
            write(ours)
            write(cpus)
        for ours, cpus in zip(found, expected, strict=True):  # some share memory
            _C.set_compile_policy(choose.choice(["auto", "first"]))
            torch.testing.assert_close(ours.cpu(), cpus, rtol=1e-3, atol=1e-3)


def test_a_large_graph_beside_what_is_read_is_started() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for i in range(40):
            x = (x * 0.9 + 0.1 * i).tanh()
        return x

    x, flag = torch.ones(1, 8).to("pjrt"), torch.ones(3).to("pjrt")
    for _ in range(5):
        x = chain(x)
        assert (flag + 1).sum().item() == 6
    metrics = torch_pjrt.metrics()
    assert metrics["syncs_by_cause"] == {"read of an element": 5, "a large graph beside what was read": 5}
    small = torch.ones(4).to("pjrt") * 3  # stays pending: it is cheap and may not be needed
    (flag + 1).sum().item()
    assert torch_pjrt.metrics()["syncs"] == 11
    del small


def test_a_loop_in_one_graph_pays_within_its_run() -> None:
    """Each segment counts as an execution: the later ones run with the first one's program."""
    x = torch.ones(2000, 2000).to("pjrt")
    a = torch.linspace(0, 1, 2000 * 2000).reshape(2000, 2000).to("pjrt")
    for _ in range(120):
        x = torch.abs(a * x) * 0.5 + 0.1
    x.sum().item()
    interpreted, compiled = counts()
    assert 1 <= interpreted <= 10
    assert 1 <= compiled <= 3  # a segment, the calls before it, the rest
