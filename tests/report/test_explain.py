"""The reports of torch_pjrt.explain()."""

from __future__ import annotations

import contextlib
import inspect
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import torch_pjrt
from tests.ops.opinfo import may_call_kernels
from torch_pjrt import report as reports
from torch_pjrt.report import GraphRun, Report
from torch_pjrt.report.difference import Difference

pytestmark = pytest.mark.compiled

HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def _nothing_pending() -> Iterator[None]:
    torch_pjrt.sync()
    yield
    torch_pjrt.sync()


def line() -> int:
    """Returns the caller's line."""
    frame = inspect.currentframe()
    assert frame
    assert frame.f_back
    return frame.f_back.f_lineno


def new(report: Report) -> GraphRun:
    """Returns the only graph of the report that was compiled."""
    [run] = [run for run in report.graphs if run.source == "compiled"]
    return run


def in_short(run: GraphRun) -> list[tuple[str, str, str, str, str]]:
    return [(d.kind, d.op, d.what, d.before, d.after) for d in run.differences]


def test_each_run_with_its_cause_line_size_and_program() -> None:
    x = torch.ones(61, 3).to("pjrt")
    with torch_pjrt.explain() as report:
        for _ in range(2):
            y = x.exp().sum(dim=1)
            z, at = y[0].item(), line()
        y.cpu()
        torch_pjrt.sync(x.sin())
    first, second, third = report.graphs
    assert z == pytest.approx(3 * 2.718281828)
    assert (first.file, first.line) == (__file__, at)
    assert first.place == f"{HERE}:{at}"
    assert {first.cause, second.cause} == {"read of an element"}
    # exp and sum, and the y of the first iteration is a result
    assert (first.nodes, first.arguments, first.results) == (2, 1, 1)
    assert (first.argument_bytes, first.result_bytes) == (61 * 3 * 4, 61 * 4)
    assert first.source == "compiled"
    assert first.compile_seconds > 0
    assert (second.graph, second.source, second.compile_seconds) == (first.graph, "memory", 0)
    assert first.when < second.when <= time.monotonic()
    assert second.execute_seconds > 0
    assert third.cause == "torch_pjrt.sync"
    assert third.graph != first.graph


def test_nothing_is_taken_down_outside() -> None:
    x = torch.ones(62, 3).to("pjrt")
    x.exp().cpu()
    with torch_pjrt.explain() as outer:
        x.sin().cpu()
        with torch_pjrt.explain() as inner:
            x.cos().cpu()
            assert len(inner.graphs) == 1  # readable while it is open
        x.tan().cpu()
    x.exp().cpu()
    assert len(inner.graphs) == 1
    assert [run.nodes for run in outer.graphs] == [1, 1, 1]
    assert inner.graphs[0] == outer.graphs[1]
    assert not reports.is_active()


def test_an_exception_ends_it() -> None:
    with contextlib.suppress(ZeroDivisionError), torch_pjrt.explain() as report:
        torch.ones(62, 4).to("pjrt").exp().cpu()
        raise ZeroDivisionError
    assert len(report.graphs) == 1
    assert not reports.is_active()


def test_another_shape_is_reported_where_it_comes_in() -> None:
    w = torch.ones(3, 5).to("pjrt")

    def step(batch: int) -> int:
        x = torch.ones(batch, 3).to("pjrt")
        ((x @ w).relu() + 1.0).sum(dim=1, keepdim=True).expand(-1, 4).cpu()
        return line() - 1

    step(63)
    with torch_pjrt.explain() as report:
        at = step(64)
    run = new(report)
    assert run.resembles
    assert in_short(run) == [("shape", "aten::mm", "self", "f32[63, 3]", "f32[64, 3]")]
    assert str(run.differences[0]) == f"shape: self of aten::mm ({__file__}:{at}): f32[63, 3] → f32[64, 3]"


def test_another_dtype() -> None:
    def step(dtype: torch.dtype) -> None:
        torch.ones(65, 3, dtype=dtype).to("pjrt").exp().sum(dim=1).cpu()

    step(torch.float32)
    with torch_pjrt.explain() as report:
        step(torch.float64)
    assert in_short(new(report)) == [("dtype", "aten::exp", "self", "f32[65, 3]", "f64[65, 3]")]


def test_another_layout() -> None:
    def step(x: torch.Tensor) -> None:
        x.to("pjrt").exp().cpu()

    step(torch.ones(66, 67))
    with torch_pjrt.explain() as report:
        step(torch.ones(67, 66).t())
    assert in_short(new(report)) == [("strides", "aten::exp", "self", "f32[66, 67]", "f32[66, 67]{1, 66}")]


def test_another_number() -> None:
    x = torch.ones(68, 3).to("pjrt")
    (x * 0.5).cpu()
    with torch_pjrt.explain() as report:
        (x * 1.5).cpu()
        (x * 2.5).cpu()
    assert [run.source for run in report.graphs] == ["compiled", "memory"]
    assert in_short(new(report)) == [("number", "aten::mul.Tensor", "other", "0.5", "1.5 (an input from now on)")]


def test_another_attribute() -> None:
    x = torch.ones(69, 69).to("pjrt")
    x.cumsum(0).cpu()
    with torch_pjrt.explain() as report:
        x.cumsum(1).cpu()
    assert in_short(new(report)) == [("attribute", "aten::cumsum", "dim", "0", "1")]


def test_an_op_more_and_an_op_less() -> None:
    x = torch.ones(70, 3).to("pjrt")
    x.exp().sin().sum(dim=0).cpu()
    with torch_pjrt.explain() as report:
        x.exp().cos().cos().sum(dim=0).cpu()
    assert in_short(new(report)) == [
        ("op", "aten::cos", "", "0 calls", "2 calls"),
        ("op", "aten::sin", "", "1 call", "0 calls"),
    ]


def test_another_operand() -> None:
    x, y = torch.ones(71, 71).to("pjrt"), torch.ones(71, 71).to("pjrt")
    (x.exp() - y.sin()).cpu()
    with torch_pjrt.explain() as report:
        a, b = x.exp(), y.sin()
        (b - a).cpu()
        del a, b
    kinds = {(d.kind, d.op, d.what) for d in new(report).differences}
    assert kinds >= {("operand", "aten::sub.Tensor", "self"), ("operand", "aten::sub.Tensor", "other")}


def test_another_tensor_that_is_held() -> None:
    x = torch.ones(72, 3).to("pjrt")
    x.exp().sum(dim=0).cpu()
    with torch_pjrt.explain() as report:
        y = x.exp()
        y.sum(dim=0).cpu()
    assert in_short(new(report)) == [("result", "aten::exp", "result 0", "not held", "held")]


def test_a_graph_like_no_other() -> None:
    x = torch.ones(73).to("pjrt")
    with torch_pjrt.explain() as report:
        # Earlier tests of ops in this process left graphs of one op or two.
        torch.special.i0e(x).logaddexp(x).atan2(x).hypot(x).xlogy(x).copysign(x).cpu()
    assert new(report).resembles is None
    assert new(report).differences == ()


def test_a_fallback_with_its_reason() -> None:
    x = torch.ones(3, 2).to("pjrt") + 1
    with warnings.catch_warnings(), torch_pjrt.explain() as report:
        warnings.simplefilter("ignore")
        torch.linalg.lstsq(x, x, driver="gelss")
        at = line() - 1
    [fallback] = report.fallbacks
    assert (fallback.op, fallback.file, fallback.line) == ("aten::linalg_lstsq", __file__, at)
    assert fallback.reason == "its result's shape depends on data"
    assert [run.cause for run in report.graphs] == ["aten::linalg_lstsq on the host"]


def test_training_tells_of_the_optimizers_step() -> None:
    model = torch.nn.Linear(3, 2).to("pjrt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(74, 3).to("pjrt")
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    with torch_pjrt.explain() as report:
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            at = line() - 1
    assert [(run.cause, run.line) for run in report.graphs] == [("optimizer step", at)] * 3
    assert torch_pjrt.metrics()["syncs_by_cause"] == {"optimizer step": 3}


def test_entries_of_others() -> None:
    reports.record(reports.GraphBreak(reason="nobody listens"))
    with torch_pjrt.explain() as report:
        torch.ones(75).to("pjrt").exp().cpu()
        reports.record(reports.GraphBreak(reason="a print", file="model.py", line=3))
        torch.ones(75).to("pjrt").exp().cpu()
        reports.record(reports.Recompile(function="forward", reason="x.shape[0]: 3 → 4", file="model.py", line=1))
    kinds = [type(entry).__name__ for entry in report.entries]
    assert kinds == ["GraphRun", "GraphBreak", "GraphRun", "Recompile"]
    assert [entry.reason for entry in report.breaks] == ["a print"]
    assert [entry.function for entry in report.recompiles] == ["forward"]
    text = str(report)
    assert "graph breaks" in text
    assert "x.shape[0]: 3 → 4" in text


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    x = torch.ones(76, 3).to("pjrt")
    (x.exp() * 0.5).cpu()
    with warnings.catch_warnings(), torch_pjrt.explain() as report:
        warnings.simplefilter("ignore")
        for _ in range(3):
            (x[:70].exp() * 0.5).cpu()
        torch.linalg.lstsq(x, x, driver="gelss")
    text = str(report)
    assert text.splitlines()[0].startswith("3 runs of 1 graph; 1 compiled and 0 loaded from disk in ")
    assert text.splitlines()[0].endswith("; 1 host fallback")
    assert "(x[:70].exp() * 0.5).cpu()" in text  # the line of code
    assert "copy to the host" in text
    assert "ran on the host" in text
    assert "aten::linalg_lstsq" in text
    with torch_pjrt.explain() as empty:
        pass
    assert str(empty) == "0 runs of 0 graphs; 0 compiled and 0 loaded from disk in 0 µs; 0 host fallbacks\n"


def test_a_number_in_the_place_of_a_tensor() -> None:
    """A number may begin with a sign, unlike a type."""
    x = torch.ones(3, 83).to("pjrt")
    with torch_pjrt.explain() as report:
        (x.sin() - (-1.5)).cos().cpu()
        (x.sin() - x).cos().cpu()
    (made,) = (difference for difference in report.graphs[1].differences if difference.op.startswith("aten::sub"))
    assert (made.kind, made.before) == ("tensor", "-1.5")


def test_a_difference_as_text() -> None:
    plain = Difference("in place", "", "", 0, "results", "1", "0")
    assert str(plain) == "in place: results: 1 → 0"


@pytest.mark.skipif(not may_call_kernels(), reason="programs call no libraries here")
def test_calls_of_libraries_are_named() -> None:
    x = torch.rand(64, 128).to("pjrt")
    with torch_pjrt.explain() as report:
        torch_pjrt.sync([x.cumsum(1).sin(), x.cummax(1).values])
    assert {(call.op, call.count) for call in new(report).kernels} == {("aten::cumsum", 1), ("aten::cummax", 1)}
    assert {call.kernel for call in new(report).kernels} == {"PyTorch's kernel"}
    assert "done by libraries" in str(report)
    assert "aten::cummax" in str(report)
