"""torch_pjrt.explain() around functions that torch.compile compiled."""

from __future__ import annotations

import warnings

import torch

import torch_pjrt


def test_calls_of_a_compiled_function() -> None:
    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w)

    torch._dynamo.reset()
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


def test_a_cut_with_its_reason() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvalsh(x @ x.t()) + 1

    torch._dynamo.reset()
    with warnings.catch_warnings(), torch_pjrt.explain() as report:
        warnings.simplefilter("ignore")
        torch.compile(f, backend="pjrt")(torch.eye(82))
    [cut] = report.breaks
    assert cut.reason.startswith("aten._linalg_eigh.default: ")
    assert cut.file == __file__
    assert len(report.graphs) == 2  # before and after it
