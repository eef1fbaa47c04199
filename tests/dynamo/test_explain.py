"""torch_pjrt.explain() around functions that torch.compile compiled."""

from __future__ import annotations

import warnings

import pytest
import torch

import torch_pjrt


def test_calls_of_a_compiled_function() -> None:
    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w)

    fast = torch.compile(layer, backend="pjrt", dynamic=False)
    w = torch.ones(81, 5)
    with torch_pjrt.explain() as report:
        for batch in (3, 3, 4):
            fast(torch.ones(batch, 81), w)
    runs = report.graphs
    assert [run.source for run in runs] == ["compiled", "memory", "compiled"]
    assert {run.cause for run in runs} == {"a call of a compiled graph"}
    assert {run.file for run in runs} == {__file__}
    assert [(run.nodes, run.arguments, run.results) for run in runs] == [(2, 2, 1)] * 3
    assert runs[2].resembles == runs[0].graph == runs[1].graph
    assert [(d.kind, d.op, d.before, d.after) for d in runs[2].differences] == [
        ("shape", "aten::mm", "f32[3, 81]", "f32[4, 81]")
    ]


@pytest.mark.host_memory
def test_what_is_copied() -> None:
    def double_in_place(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2).sum()

    fast = torch.compile(double_in_place, backend="pjrt")
    memory = torch.ones(84 + 1)
    with torch_pjrt.explain() as report:
        fast(memory[:84])
    assert report.graphs[0].copied_bytes == 0
    assert "copied" not in str(report)
    with torch_pjrt.explain() as report:
        fast(memory[1:])  # not aligned: there, and back
    assert report.graphs[0].copied_bytes == 2 * 84 * 4
    assert "672 B" in str(report)
    assert torch_pjrt.metrics()["host_transfer_bytes"] == 2 * 84 * 4


@torch.library.custom_op("explained::lives_on_the_host", mutates_args=())
def lives_on_the_host(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@lives_on_the_host.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_cut_with_its_reason() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = lives_on_the_host(x @ x.t()) + 1
        return result

    with warnings.catch_warnings(), torch_pjrt.explain() as report:
        warnings.simplefilter("ignore")
        torch.compile(f, backend="pjrt")(torch.eye(82))
    [cut] = report.breaks
    assert cut.reason.startswith("explained.lives_on_the_host.default: ")
    assert cut.file == __file__
    assert len(report.graphs) == 2  # before and after it


def test_recompiles_with_the_input_and_the_dimension() -> None:
    class Scale(torch.nn.Module):
        def forward(self, x: torch.Tensor, k: int = 2) -> torch.Tensor:
            return x * k

    fast = torch.compile(Scale(), backend="pjrt")
    with torch_pjrt.explain() as report:
        fast(torch.ones(3, 4))
        assert report.recompiles == []
        fast(torch.ones(3, 4))
        fast(torch.ones(5, 4))  # Dynamo's guard; the size is a symbol from now on
        fast(torch.ones(7, 4))
        fast(torch.ones(7, 4))
        with torch.no_grad():
            fast(torch.ones(7, 4))
    reasons = [recompile.reason for recompile in report.recompiles]
    assert reasons == [
        "tensor 'x' size mismatch at index 0. expected 3, actual 5",
        "x: size 5 → 7 in dimension 0",
        "GLOBAL_STATE changed: grad_mode",
    ]
    assert {(recompile.function, recompile.file) for recompile in report.recompiles} == {("forward", __file__)}
    assert "x: size 5 → 7 in dimension 0" in str(report)


def test_recompiles_for_another_number() -> None:
    fast = torch.compile(lambda x, k: x * k, backend="pjrt")
    with torch_pjrt.explain() as report:
        for k in (2, 3, 4):
            fast(torch.ones(3), k)
    assert [recompile.reason for recompile in report.recompiles] == ["k == 2", "k: 3 → 4"]


def test_recompiles_of_a_backward() -> None:
    w = torch.ones(4, requires_grad=True)
    fast = torch.compile(lambda x: (x * w).sin().sum(), backend="pjrt", dynamic=True)
    with torch_pjrt.explain() as report:
        for rows in (3, 5):
            fast(torch.ones(rows, 4)).backward()
    assert [recompile.reason for recompile in report.recompiles] == ["x: size 3 → 5 in dimension 0"] * 2
