"""torch.cond, while_loop and scan in a compiled function: loops and branches of its one program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.scan import scan

import torch_pjrt


@pytest.fixture(autouse=True)
def _strictly() -> Iterator[None]:
    with torch_pjrt.strict_mode():
        yield


def check(f: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """One program, which gives what eager gives."""
    expected = f(*inputs)
    torch_pjrt.reset_metrics()
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(f, backend="pjrt", fullgraph=True)(*inputs), expected)
    metrics = torch_pjrt.metrics()
    assert metrics["executions"] == 1
    assert metrics["host_fallbacks"] == {}


def program(f: Callable[..., Any], *inputs: torch.Tensor) -> str:
    seen: list[str] = []
    torch_pjrt._C.set_program_listener(lambda graph, text: seen.append(text))
    try:
        torch.compile(f, backend="pjrt", fullgraph=True)(*inputs)
    finally:
        torch_pjrt._C.set_program_listener(None)
    return "".join(seen)


def doubled_until(x: torch.Tensor) -> Any:
    return while_loop(lambda i, y: y.sum() < 100, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x + 1))


class TestWhile:
    @pytest.mark.parametrize("start", [0.5, 40.0])
    def test_values(self, start: float) -> None:
        check(doubled_until, torch.full((3,), start))

    def test_it_is_one_loop(self) -> None:
        assert "stablehlo.while" in program(doubled_until, torch.rand(3))

    def test_the_number_of_turns_may_vary(self) -> None:
        fast = torch.compile(doubled_until, backend="pjrt", fullgraph=True)
        for start in (0.1, 3.0, 200.0):
            x = torch.full((3,), start)
            torch.testing.assert_close(fast(x), doubled_until(x))
        assert torch_pjrt.metrics()["graphs_compiled"] == 1

    def test_a_module_and_other_inputs(self) -> None:
        linear = nn.Linear(4, 4)

        @torch.no_grad()
        def f(x: torch.Tensor, least: torch.Tensor) -> Any:
            return while_loop(
                lambda i, y: (i < 5) & (y.norm() > least), lambda i, y: (i + 1, linear(y).t().contiguous()),
                (torch.tensor(0), x),
            )  # fmt: skip

        check(f, torch.randn(4, 4), torch.tensor(1e-3))

    def test_loops_within_loops(self) -> None:
        def f(x: torch.Tensor) -> Any:
            def body(i: torch.Tensor, y: torch.Tensor) -> Any:
                inner = while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z + j), (torch.zeros_like(i), y))
                return i + 1, inner[1]

            return while_loop(lambda i, y: i < 4, body, (torch.tensor(0), x))

        check(f, torch.zeros(2))

    def test_an_index_out_of_range_in_the_last_turn(self) -> None:
        def f(table: torch.Tensor, n: torch.Tensor) -> Any:
            return while_loop(
                lambda i, total: i < n, lambda i, total: (i + 1, total + table.index_select(0, i.reshape(1))[0]),
                (torch.tensor(0), torch.tensor(0.0)),
            )  # fmt: skip

        table = torch.rand(5)
        check(f, table, torch.tensor(5))
        check(f, table, torch.tensor(0))
        with pytest.raises(IndexError, match="index out of range"):
            torch.compile(f, backend="pjrt", fullgraph=True)(table, torch.tensor(6))


class TestCond:
    @staticmethod
    def branch(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda t: t * w, lambda t: t - w, (x * 2,)) * 3

    @pytest.mark.parametrize("sign", [1.0, -1.0])
    def test_values(self, sign: float) -> None:
        check(self.branch, torch.full((3,), sign), torch.full((3,), 5.0))

    def test_only_one_branch_is_computed(self) -> None:
        assert "stablehlo.if" in program(self.branch, torch.rand(3), torch.rand(3))

    @pytest.mark.parametrize("sign", [1.0, -1.0])
    def test_gradients(self, sign: float) -> None:
        x, w = torch.full((3,), sign, requires_grad=True), torch.full((3,), 5.0, requires_grad=True)
        expected = torch.autograd.grad(self.branch(x, w).sum(), (x, w))
        fast = torch.compile(self.branch, backend="pjrt", fullgraph=True)
        torch.testing.assert_close(torch.autograd.grad(fast(x, w).sum(), (x, w)), expected)

    @pytest.mark.parametrize("index", [1, 7])
    def test_an_index_out_of_range_counts_in_the_branch_that_is_taken(self, index: int) -> None:
        def f(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            return torch.cond(i.sum() < 5, lambda: table.index_select(0, i), lambda: table[:1] * 2, ())

        check(f, torch.rand(5), torch.tensor([index]))

    def test_random_numbers_in_a_branch(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda t: nn.functional.dropout(t, 0.5), lambda t: t.clone(), (x,))

        fast = torch.compile(f, backend="pjrt", fullgraph=True)
        assert 20 < (fast(torch.ones(100)) == 0).sum() < 80
        assert (fast(-torch.ones(100)) == -1).all()


class TestScan:
    @pytest.mark.parametrize("turns", [5, 300])
    def test_values(self, turns: int) -> None:
        def f(init: torch.Tensor, xs: torch.Tensor) -> Any:
            return scan(lambda carry, x: (carry * 0.9 + x, carry * x), init, xs)

        check(f, torch.ones(3), torch.randn(turns, 3))

    def test_a_long_one_is_a_loop(self) -> None:
        def f(init: torch.Tensor, xs: torch.Tensor) -> Any:
            return scan(lambda carry, x: (carry + x, carry * x), init, xs)

        assert len(program(f, torch.ones(3), torch.randn(1000, 3))) < 20_000


AUTOCAST: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cond": lambda x: torch.cond(x.sum() > 0, lambda y: y @ y, lambda y: y @ y.t(), (x,)),
    "while_loop": lambda x: while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, (y @ y / 8).float()), (torch.zeros((), device=x.device), x)
    )[1],
    "scan": lambda x: scan(lambda sum_, row: (sum_ + row, (x @ row).clone()), torch.zeros_like(x[0]), x)[1],
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", AUTOCAST)
def test_under_autocast(name: str, compiled: bool) -> None:
    """PyTorch's list of devices whose autocast these operators pass ends with those that it knows."""
    f, x = AUTOCAST[name], torch.rand(8, 8, generator=torch.Generator().manual_seed(0))
    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16):
        expected = f(x)
    with torch.autocast("pjrt", torch.bfloat16):
        got = (torch.compile(f, backend="pjrt", fullgraph=True) if compiled else f)(x.to("pjrt"))
    torch.testing.assert_close(got.cpu(), expected, rtol=2e-2, atol=2e-2)
