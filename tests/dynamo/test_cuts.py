"""Calls that are cut out of a compiled graph in a run: after sizes that depend on data, and for sizes that a later call
has."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import torch_pjrt

Function = Callable[..., Any]


@torch.library.custom_op("tests_cuts::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * 3)


@triple.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("tests_cuts::fill", mutates_args=("x",))
def fill(x: torch.Tensor, y: torch.Tensor) -> None:
    x.detach().numpy()[:] = y.detach().numpy()


@pytest.fixture(autouse=True)
def _whole_graphs() -> Iterator[None]:
    with (
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def compiled(f: Function) -> Function:
    return torch.compile(f, backend="pjrt", fullgraph=True)


def input_of(size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(size)) + 0.5


def check(f: Function, *calls: tuple[Any, ...]) -> None:
    fast = compiled(f)
    for arguments in calls:
        torch.testing.assert_close(fast(*arguments), f(*arguments), rtol=1e-4, atol=1e-4)


def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


def outer(x: torch.Tensor) -> torch.Tensor:
    return x[:, None] * x[None]


BEHIND_A_MASK: dict[str, tuple[Function, str]] = {
    "another mask": (lambda y: y[y > 0.5].sum(), "aten.index.Tensor"),
    "unique": (lambda y: torch.unique((y * 2).round()) + 1, "aten._unique2.default"),
    "linear algebra": (lambda y: torch.linalg.svdvals(torch.matrix_exp(outer(y))).log() * 2, "aten.index.Tensor"),
    "a custom op": (lambda y: triple(y + 1) * 2, "tests_cuts.triple.default"),
    "one after the other": (lambda y: triple(triple(y + 1) * 2)[1:] + 1, "tests_cuts.triple.default"),
}


@pytest.mark.parametrize("name", BEHIND_A_MASK)
@pytest.mark.sampled(2)
def test_behind_a_mask(name: str) -> None:
    f, op = BEHIND_A_MASK[name]
    check(lambda x: f(positive(x)), *((input_of(size),) for size in (8, 8, 11, 14, 11)))
    assert op in torch_pjrt.metrics()["host_fallbacks"]


def test_a_mask_in_training() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[x > 0] = y[x > 0] * 2
        return y

    fast = compiled(f)
    for size in (7, 7, 9, 12):
        x = input_of(size).requires_grad_()
        (expected,) = torch.autograd.grad(f(x).square().sum(), x)
        torch.testing.assert_close(torch.autograd.grad(fast(x).square().sum(), x), (expected,))


def test_behind_a_number() -> None:
    def f(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        size = int(n.item())
        torch._check(size >= 2)
        torch._check(size <= 8)
        return triple(x[:size] * 2) + 1

    check(f, *((input_of(8), torch.tensor(n)) for n in (3, 5, 3)))


def test_an_unbacked_size() -> None:
    fast = compiled(lambda x: triple(x * 2) + 1)
    for size in (4, 4, 7):
        x = input_of(size)
        torch._dynamo.decorators.mark_unbacked(x, 0)
        torch.testing.assert_close(fast(x), x * 6 + 1)


def test_the_graph_is_cut_once() -> None:
    """The first call finds the cuts, which are reported; later calls have the fewest possible pieces."""

    def f(x: torch.Tensor) -> torch.Tensor:
        behind = triple(positive(x)) + 1  # cut in the piece after the mask
        return behind.sum() + triple(triple(x))[0]  # in the last piece, which needs both

    fast, x = compiled(f), input_of(8)
    with torch_pjrt.explain() as report:
        fast(x)
    refused = ["aten.index.Tensor", *["tests_cuts.triple.default"] * 3]
    assert sorted(entry.reason.split(":")[0] for entry in report.breaks) == refused
    assert {entry.file for entry in report.breaks} == {__file__}
    for _ in range(2):
        with torch_pjrt.explain() as report:
            torch.testing.assert_close(fast(x), f(x))
        assert report.breaks == []
        assert len(report.graphs) == 2  # the condition of the mask; all that comes after
    assert torch_pjrt.metrics()["host_fallbacks"] == {"aten.index.Tensor": 1, "tests_cuts.triple.default": 3}


def test_it_is_warned_of_with_the_line() -> None:
    schema = "(Tensor x) -> Tensor"
    other = torch.library.custom_op("tests_cuts::other", lambda x: triple(x), mutates_args=(), schema=schema)
    other.register_fake(torch.empty_like)
    fast = compiled(lambda x: other(positive(x)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fast(input_of(8))
    texts = [str(warning.message) for warning in caught]
    assert any(text.startswith("[tests_cuts.other.default] is not compiled at " + __file__) for text in texts)


def test_the_code_of_a_custom_op_runs_in_each_call() -> None:
    calls: list[torch.device] = []

    @torch.library.custom_op("tests_cuts::count", mutates_args=())
    def count(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.device)
        return x * len(calls)

    count.register_fake(torch.empty_like)
    for device in ("cpu", "pjrt"):
        calls.clear()
        fast = compiled(lambda x: count(x + 1) - 1)
        assert [fast(torch.ones(1, device=device)).item() for _ in range(3)] == [1, 3, 5]
        assert calls == [torch.empty(0, device=device).device] * 3
    assert torch_pjrt.metrics()["host_fallbacks"] == {"tests_cuts.count.default": 2}


def test_strict() -> None:
    fast, x = compiled(lambda x: triple(x * 2) + 1), input_of(4)
    torch._dynamo.decorators.mark_unbacked(x, 0)
    with (
        torch_pjrt.strict_mode(),
        pytest.raises(RuntimeError, match=r"triple.default\] can't be compiled at .*test_cut"),
    ):
        fast(x)
    torch.testing.assert_close(fast(x), x * 6 + 1)


class TestWhatIsWritten:
    """Pieces that no result connects run in the graph's order nevertheless."""

    @pytest.mark.parametrize("write", [lambda x, y: x.copy_(triple(y)), fill])
    def test_an_argument_that_was_read_before(self, write: Function) -> None:
        def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            z = x + 1
            write(x, y)
            return z, x * 2

        x, y = torch.zeros(3), torch.ones(3)
        expected = f(other := x.clone(), y)
        torch.testing.assert_close(compiled(f)(x, y), expected)
        torch.testing.assert_close(x, other)

    def test_a_storage_that_is_let_go_of(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            x.untyped_storage().resize_(0)
            return y.cos()

        fast = compiled(f)
        for size in (4, 9):
            x = input_of(size)
            torch.testing.assert_close(fast(x), f(input_of(size)))
            assert x.untyped_storage().size() == 0


class TestLaterSizes:
    """Sizes in a graph are those of the captured call; in later calls its symbols have other values."""

    def test_a_view_of_memory(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            return (x * 2).as_strided((2, 2), (1, 1)) + x.sum()

        with torch_pjrt.strict_mode():
            check(f, *((input_of(size),) for size in (4, 6, 9)))
        assert torch_pjrt.metrics()["executions"] == 3

    def test_a_view_of_memory_whose_size_depends_on_data(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            return (positive(x) + 1).as_strided((2,), (1,)) * 2

        check(f, *((input_of(size),) for size in (8, 12)))
        assert torch_pjrt.metrics()["host_fallbacks"].keys() == {"aten.index.Tensor"}

    def test_a_view_that_is_refused_for_one(self) -> None:
        """The argument is dense at first, then a view with gaps."""
        fast = torch.compile(lambda x: x.as_strided((2, 2), (1, 1)) * 2, backend="pjrt", dynamic=True)
        for x in (torch.rand(4, 3), torch.rand(5, 3), torch.rand(9, 6)[:, :3]):
            torch.testing.assert_close(fast(x), x.as_strided((2, 2), (1, 1)) * 2)

    def test_the_strides_that_views_rest_on(self) -> None:
        convolution = nn.Conv2d(8, 8, 3, padding=1, groups=8).requires_grad_(False)

        def f(tokens: torch.Tensor) -> torch.Tensor:
            y = convolution(tokens.transpose(1, 2).view(-1, 8, 4, 4))
            return nn.functional.gelu(y.flatten(2).transpose(1, 2)).clone().view(-1, 8)

        with torch_pjrt.strict_mode():
            check(f, *((torch.randn(batch, 16, 8),) for batch in (2, 3, 5)))
        assert torch_pjrt.metrics()["executions"] == 3

    def test_calls_behind_a_call_that_is_cut_out(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = positive(x)
            return triple(y) + y.reshape(y.shape[0], 1).sum(1) * triple(y * 2)

        fast = torch.compile(f, backend="pjrt", fullgraph=True, dynamic=True)
        for size in (8, 12, 9):
            torch.testing.assert_close(fast(input_of(size)), f(input_of(size)))
        assert torch_pjrt.metrics()["host_fallbacks"]["tests_cuts.triple.default"] == 2


def test_a_custom_op_that_writes_is_reported_by_its_name() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        fill(z, y)
        return z + 1

    check(f, (torch.ones(3), torch.arange(3.0)))
    assert torch_pjrt.metrics()["host_fallbacks"].keys() == {"tests_cuts.fill.default"}
