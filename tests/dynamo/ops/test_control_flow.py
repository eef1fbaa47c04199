"""torch.cond, while_loop, scan and map in a compiled function: loops and branches of its one program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import foreach_map, while_loop
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan

import torch_pjrt


@pytest.fixture(autouse=True)
def _strictly() -> Iterator[None]:
    with torch_pjrt.strict_mode():
        yield


def check(f: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """Checks that the function is one program, with eager's results."""
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


def gradients(f: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    """Checks that the compiled function's gradients are eager's."""
    expected = torch.autograd.grad(f(*inputs).sin().sum(), inputs)
    torch._dynamo.reset()
    fast = torch.compile(f, backend="pjrt", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(fast(*inputs).sin().sum(), inputs), expected)


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

    @pytest.mark.host_memory
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
        gradients(self.branch, torch.full((3,), sign, requires_grad=True), torch.full((3,), 5.0, requires_grad=True))

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
    @pytest.mark.parametrize("iterations", [5, 300])
    def test_values(self, iterations: int) -> None:
        def f(init: torch.Tensor, xs: torch.Tensor) -> Any:
            return scan(lambda carry, x: (carry * 0.9 + x, carry * x), init, xs)

        check(f, torch.ones(3), torch.randn(iterations, 3))

    @pytest.mark.parametrize("iterations", [5, 300])
    def test_gradients(self, iterations: int) -> None:
        def f(w: torch.Tensor, xs: torch.Tensor) -> torch.Tensor:
            return scan(lambda carry, x: ((carry @ w).tanh() + x, carry * x), torch.zeros(3), xs)[1]

        gradients(f, (torch.randn(3, 3) / 4).requires_grad_(), torch.randn(iterations, 3, requires_grad=True))

    @pytest.mark.parametrize(("iterations", "loops"), [(5, False), (100, True)])
    def test_a_long_one_is_a_loop(self, iterations: int, loops: bool) -> None:
        def f(init: torch.Tensor, xs: torch.Tensor) -> Any:
            return scan(lambda carry, x: (carry + x, carry * x), init, xs)

        torch._dynamo.reset()
        assert ("stablehlo.while" in program(f, torch.ones(3), torch.randn(iterations, 3))) == loops

    def test_random_numbers_in_a_long_one(self) -> None:
        def f(init: torch.Tensor, xs: torch.Tensor) -> Any:
            return scan(lambda carry, x: (carry + x, nn.functional.dropout(x, 0.5)), init, xs)[1]

        fast = torch.compile(f, backend="pjrt", fullgraph=True)
        assert 800 < (fast(torch.ones(50), torch.ones(40, 50)) == 0).sum() < 1200

    @pytest.mark.parametrize("iterations", [5, 100])
    @pytest.mark.parametrize("grad", [False, True])
    def test_checks_of_matrices(self, iterations: int, grad: bool) -> None:
        """AOTAutograd drops them from the body."""

        def f(xs: torch.Tensor) -> Any:
            def iteration(carry: torch.Tensor, x: torch.Tensor) -> Any:
                lower = torch.linalg.cholesky(x)
                return carry + lower, lower.clone()

            return scan(iteration, torch.zeros(2, 2), xs)

        torch._dynamo.reset()
        fast = torch.compile(f, backend="pjrt", fullgraph=True)
        xs = (torch.eye(2) * torch.arange(1.0, iterations + 1)[:, None, None]).requires_grad_(grad)
        torch.testing.assert_close(fast(xs), f(xs))
        xs = xs.detach()
        xs[iterations // 2] *= -1
        with pytest.raises(torch.linalg.LinAlgError, match="the leading minor of order 1 is not positive-definite"):
            fast(xs.requires_grad_(grad))


class TestMap:
    def test_checks_of_matrices(self) -> None:
        torch._dynamo.reset()
        fast = torch.compile(lambda xs: map_(lambda x: x.inverse() + 1, xs), backend="pjrt", fullgraph=True)
        xs = torch.eye(2).repeat(3, 1, 1)
        torch.testing.assert_close(fast(xs), xs + 1)
        with pytest.raises(torch.linalg.LinAlgError, match="the inversion could not be completed"):
            fast(xs * 0)

    @pytest.mark.parametrize("iterations", [5, 300])
    def test_values(self, iterations: int) -> None:
        def f(xs: torch.Tensor, w: torch.Tensor) -> Any:
            return map_(lambda x, w: (x[0] @ w, x[1].sin(), x[0] > 0), (xs, xs * 2), w)

        check(f, torch.randn(iterations, 3), torch.randn(3, 2))

    @pytest.mark.parametrize("iterations", [5, 300])
    def test_gradients(self, iterations: int) -> None:
        def f(xs: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return map_(lambda x: (x @ w).tanh(), xs)

        gradients(f, torch.randn(iterations, 3, requires_grad=True), torch.randn(3, 2, requires_grad=True))

    def test_a_long_one_is_a_loop(self) -> None:
        assert "stablehlo.while" in program(lambda xs: map_(lambda x: x.sin(), xs), torch.randn(100, 3))


class TestSizesThatVary:
    """A body may capture a size, which is passed to it with its tensors."""

    @pytest.mark.parametrize("iterations", [5, 100])
    def test_scan(self, iterations: int) -> None:
        def f(xs: torch.Tensor, w: torch.Tensor) -> Any:
            return scan(lambda carry, x: (carry + x * w.shape[0], carry * x), torch.zeros(w.shape[1]), xs)

        self.check(f, lambda size: (torch.randn(iterations, size), torch.randn(size, size)))

    @pytest.mark.parametrize("iterations", [5, 100])
    def test_map(self, iterations: int) -> None:
        def f(xs: torch.Tensor, w: torch.Tensor, n: int) -> Any:
            return map_(lambda x, w, n: (x @ w) * n, xs, w, n)

        self.check(f, lambda size: (torch.randn(iterations, size), torch.randn(size, 2), size))

    def test_while(self) -> None:
        def f(x: torch.Tensor, w: torch.Tensor) -> Any:
            return while_loop(lambda i, y: i < w.shape[0], lambda i, y: (i + 1, y + w.shape[1]), (torch.tensor(0), x))

        self.check(f, lambda size: (torch.randn(3), torch.randn(size, size + 1)))

    def test_cond(self) -> None:
        def f(x: torch.Tensor, w: torch.Tensor) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x * w.shape[0], lambda x: x - w.shape[1], (x,))

        self.check(f, lambda size: (torch.randn(3), torch.randn(size, size + 1)))

    @staticmethod
    def check(f: Callable[..., Any], inputs: Callable[[int], tuple[Any, ...]]) -> None:
        torch._dynamo.reset()
        torch_pjrt.reset_metrics()
        fast = torch.compile(f, backend="pjrt", fullgraph=True, dynamic=True)
        for size in (4, 6):
            values = inputs(size)
            torch.testing.assert_close(fast(*values), f(*values))
        assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_a_product_of_another_dtype() -> None:
    x = torch.randint(-128, 127, (32, 32), dtype=torch.int8)
    check(lambda x: out_dtype(torch.ops.aten.mm.default, torch.int32, x, x), x)
    check(lambda x: out_dtype(torch.ops.aten.mul.Tensor, torch.int32, x, x), x)


def test_wrapped_calls() -> None:
    check(lambda x: hints_wrapper(lambda y: (y.sin() + 1,), (x,), {}, hints={"fuse": True}), torch.randn(3))
    check(lambda x: foreach_map(lambda a, b: (a + b).relu(), [x, x * 2], [x.cos(), x]), torch.randn(3))


AUTOCAST: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cond": lambda x: torch.cond(x.sum() > 0, lambda y: y @ y, lambda y: y @ y.t(), (x,)),
    "while_loop": lambda x: while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, (y @ y / 8).float()), (torch.zeros((), device=x.device), x)
    )[1],
    "map": lambda x: map_(lambda half: half @ half.t(), x.view(2, 4, 8)),
    "scan": lambda x: scan(lambda sum_, row: (sum_ + row, (x @ row).clone()), torch.zeros_like(x[0]), x)[1],
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", AUTOCAST)
def test_under_autocast(name: str, compiled: bool) -> None:
    """PyTorch's list of devices with autocast for these operators lacks this device."""
    f, x = AUTOCAST[name], torch.rand(8, 8, generator=torch.Generator().manual_seed(0))
    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16):
        expected = f(x)
    with torch.autocast("pjrt", torch.bfloat16):
        got = (torch.compile(f, backend="pjrt", fullgraph=True) if compiled else f)(x.to("pjrt"))
    torch.testing.assert_close(got.cpu(), expected, rtol=2e-2, atol=2e-2)
