"""`./dev bench depth`: the networks, and the ratios of stored results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from models.deep import DEEP, deep

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


@pytest.mark.parametrize("name", [*DEEP, "pre-norm transformer of 256", "residual MLP of 256"])
def test_networks_learn(name: str) -> None:
    model, x = deep(name, 4)
    model(x).square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert sum(p.numel() for p in deep(name, 8)[0].parameters()) >= sum(p.numel() for p in model.parameters())
    assert torch.isfinite(model(x)).all()


def test_a_layer_of_the_deepest_is_over_one_of_the_least_deep(tmp_path: Path) -> None:
    from depth import Taken, Unit, beside, growth, picture
    from ops.kept import last_lines

    path = tmp_path / "depth.jsonl"

    def line(depth: int, **taken: tuple[float, float]) -> str:
        return json.dumps({"unit": ["ODE", "training step", depth], "taken": taken, "left_out": {}}) + "\n"

    path.write_text(
        line(4, eager=(9.0, 0.0), first=(9.0, 9.0))
        + line(64, eager=(64.0, 0.0), first=(96.0, 64.0), compile_step=(32.0, 1.0))
        + line(4, eager=(4.0, 0.0), first=(4.0, 4.0))
    )
    found = {
        unit: {way: Taken(*t) for way, t in reported["taken"].items()}
        for unit, reported in last_lines(path, Unit).items()
    }
    run, compiled = growth(found)
    assert (run.ratio, run.passed, run.against) == (1.5, False, "of 4")
    assert (compiled.ratio, compiled.passed) == (1.0, True)
    (eager,) = [one for unit, taken in found.items() for one in beside(unit, taken)]
    assert (eager.ratio, eager.against, eager.passed) == (0.5, "eager", True)
    picture(found, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 0


def test_named_units(monkeypatch: pytest.MonkeyPatch) -> None:
    from depth import units

    assert len(units()) == len(DEEP) * 2 * 3
    monkeypatch.setenv("TORCH_PJRT_BENCH_NETWORKS", "ODE,LSTMCell")
    monkeypatch.setenv("TORCH_PJRT_BENCH_DEPTHS", "4,50")
    assert [(unit.network, unit.depth) for unit in units()] == [("LSTMCell", 50), ("ODE", 4)] * 2
    monkeypatch.setenv("TORCH_PJRT_BENCH_NETWORKS", "residual MLP of 768")
    assert [(unit.network, unit.depth) for unit in units()] == [("residual MLP of 768", 4)] * 2


def test_units_whose_process_ended_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import depth

    path, why = tmp_path / "depth.jsonl", "its process ended with status 3"
    path.write_text(json.dumps({"unit": ["ODE", "forward", 4], "timed": [], "left_out": why}) + "\n")
    monkeypatch.setattr(depth, "KEPT", path)
    monkeypatch.setenv("TORCH_PJRT_BENCH_SECONDS", "-1")
    assert depth.measure() == []
    assert f"ODE, forward, 4: {why}" in capsys.readouterr().err
