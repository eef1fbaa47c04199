"""The example does what the guide says; the guide's programs are tested in tests/python/test_code_blocks.py."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._logging._internal import LazyTraceHandler, TorchLogsFormatter, trace_log

import torch_pjrt
from tests.traces.subclasses import Unit
from tests.traces.test_stages import CASES
from torch_pjrt.dynamo import backend, pieces

ROOT = Path(__file__).resolve().parents[2]


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    runpy.run_path(str(ROOT / "examples/units.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("tensor([1.5000, 2.2500]) km\n")
    assert "mul = torch.ops.aten.mul.Tensor(back_value, 0.001)" in printed


def test_reasons_of_a_new_compile() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x + x, backend="pjrt", dynamic=False)
    with torch_pjrt.explain() as report:
        for x in (Unit(torch.ones(2), context="m"), Unit(torch.ones(2), context="kg"), torch.ones(2)):
            compiled(x)
    assert [each.reason for each in report.recompiles] == ["x: context 'm' → 'kg'", "x: Unit → Tensor"]


def test_artifacts_of_tlparse(tmp_path: Path) -> None:
    """The output of TORCH_TRACE has each stage completely."""
    handler = LazyTraceHandler(str(tmp_path))
    handler.setFormatter(TorchLogsFormatter(trace=True))
    trace_log.addHandler(handler)
    try:
        f, make = CASES["product"]
        traces = torch_pjrt.trace(f, *make())
        with torch_pjrt.tracing() as block:
            torch_pjrt.jit(lambda x: x * 2, [torch.ones(2)])
    finally:
        trace_log.removeHandler(handler)
        handler.close()
    (file,) = tmp_path.iterdir()
    found = {}
    for entry in file.read_text().split("\nV")[1:]:
        head, _, payload = entry.partition("\n")
        artifact = json.loads(head[head.index("{") :]).get("artifact", {})
        if artifact.get("name", "").startswith("pjrt_"):
            found[artifact["name"]] = payload.replace("\n\t", "\n").removeprefix("\t").strip()
    assert len(traces) == 7
    assert len(block) == 3
    for stages in (traces, block):
        for i, stage in enumerate(stages, 1):
            assert found[f"pjrt_{i}_{stage.label}"] == stage.text.strip()


@pytest.mark.parametrize("name", ["product", "in place", "checkpoint", "function", "plain module"])
def test_graphs_are_the_same_with_and_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, make = CASES[name]
    arguments = make()
    found: list[str] = []

    def compile_graph(module: Any, inputs: Any, names: Any) -> Any:
        found.append(module.code)
        return pieces.compile_graph(module, inputs, names)

    monkeypatch.setattr(backend, "compile_graph", compile_graph)
    with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
        for options in ({}, {"trace": True}):
            torch._dynamo.reset()
            torch.compile(f, backend="pjrt", dynamic=False, options=options)(*arguments)
    assert len(found) == 4
    assert found[:2] == found[2:]
