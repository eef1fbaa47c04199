"""Small graphs of integers, whose shapes are often new, are run by PyTorch's own kernels instead of compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torch_pjrt

DEVICE = "pjrt"


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()


def compiled_and_interpreted() -> tuple[int, int]:
    metrics = torch_pjrt.metrics()
    assert metrics["host_fallbacks"] == {}
    return metrics["graphs_compiled"] + metrics["graphs_loaded_from_disk"], metrics["graphs_interpreted"]


def _in_place(n: int, device: str) -> torch.Tensor:
    x = torch.arange(n, device=device)
    x[1:3] += 7
    x.view(-1)[::2].mul_(3)
    return x.neg_()


def _views(n: int, device: str) -> torch.Tensor:
    x = torch.arange(6 * n, device=device).reshape(2, n, 3)
    return torch.cat([x.transpose(0, 2)[:, 1:], x.permute(2, 1, 0)[:, :1]], 1).flip(0)


BOOKKEEPING: dict[str, Callable[[int, str], object]] = {
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


@pytest.mark.parametrize("name", BOOKKEEPING)
def test_what_it_gives(name: str) -> None:
    f = BOOKKEEPING[name]
    for n in (4, 6, 10):
        given, expected = f(n, DEVICE), f(n, "cpu")
        torch.testing.assert_close(given, expected, check_device=False, check_stride=True, rtol=0, atol=0)
    compiled, interpreted = compiled_and_interpreted()
    assert compiled == 0
    assert interpreted >= 3


def test_what_is_compiled_all_the_same() -> None:
    (torch.arange(3, device=DEVICE) * 1.5).cpu()  # has floats
    assert compiled_and_interpreted() == (1, 0)
    (torch.arange(2000, device=DEVICE) + 1).cpu()  # is not small
    assert compiled_and_interpreted() == (2, 0)
    torch.randint(0, 9, (3,), device=DEVICE).cpu()  # is random
    assert compiled_and_interpreted() == (3, 0)
    x = torch.arange(3, device=DEVICE)
    for _ in range(130):
        x = x + 1
    assert x[0].item() == 130  # has many calls
    assert compiled_and_interpreted() == (4, 0)
    with torch_pjrt.strict_mode():
        (torch.arange(5, device=DEVICE) + 1).cpu()
    assert compiled_and_interpreted() == (5, 0)
    torch.compile(lambda x: x + 1, backend="pjrt")(torch.arange(3))
    assert compiled_and_interpreted() == (6, 0)


def test_a_graph_that_keeps_coming_back_is_compiled() -> None:
    x = torch.tensor(0, device=DEVICE)
    for _ in range(1010):
        x = x + 1
        x.item()
    assert x.item() == 1010
    compiled, interpreted = compiled_and_interpreted()
    assert compiled == 1
    assert 990 <= interpreted <= 1001


def test_a_mistake_is_raised_when_the_result_is_read() -> None:
    x, index = torch.arange(4).to(DEVICE), torch.tensor([1, 7]).to(DEVICE)
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

    x = torch.arange(5, device=DEVICE)
    with Calls() as calls:
        result = (x + 2).cpu()
    assert result.tolist() == [2, 3, 4, 5, 6]
    assert calls.names == ["add", "_to_copy"]
    assert compiled_and_interpreted() == (0, 1)


def test_it_is_told() -> None:
    with torch_pjrt.explain() as report:
        (torch.arange(5, device=DEVICE) + 2).cpu()
    (run,) = report.graphs
    assert (run.source, run.compile_seconds, run.nodes) == ("host", 0.0, 3)
    assert "1 small graph on the host" in str(report)


def network(x: torch.Tensor) -> torch.Tensor:
    for i in range(60):
        x = (x * 0.9 + 0.01 * i).tanh()
    return x


def decode(device: str, rounds: int) -> list[int]:
    """Like generate(): tokens and a mask grow, a counter counts, the network sees one token and a fixed mask."""
    table = torch.linspace(-1, 1, 80).reshape(10, 8).to(device)
    tokens, mask = torch.tensor([[1, 2, 3]], device=device), torch.ones(1, 3, dtype=torch.long, device=device)
    counter = torch.tensor(3, device=device)
    for _ in range(rounds):
        position = mask.cumsum(1)[:, -1:] - 1
        visible = (torch.arange(32, device=device) <= counter).to(torch.float32)
        last = tokens[:, -1] + 0  # dense, whatever the length
        hidden = network(table[last] + position) * visible.mean()
        next_token = (hidden.sum(1, keepdim=True) * 1000).long().abs() % 10
        tokens, mask = torch.cat([tokens, next_token], 1), torch.cat([mask, mask.new_ones(1, 1)], 1)
        counter += 1
        if (tokens[:, -1] == 11).all():
            break
    return tokens[0].tolist()


def test_around_a_known_network_nothing_is_compiled() -> None:
    assert decode(DEVICE, 20) == decode("cpu", 20)
    assert compiled_and_interpreted()[0] == 2  # the first round's graph, and what it has in common with the others
    torch_pjrt.reset_metrics()
    assert decode(DEVICE, 24) == decode("cpu", 24)
    assert compiled_and_interpreted()[0] == 0
