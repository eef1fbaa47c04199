"""`./dev bench models`: the stored results, and their ratios."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


def line(model: str, what: str, **reported: object) -> str:
    return json.dumps({"unit": [model, what, "bfloat16"], **reported, "machine": {}}) + "\n"


def test_the_last_line_counts_and_ours_is_over_the_fastest_that_counts(tmp_path: Path) -> None:
    from ops.kept import last_lines
    from whole_models import Unit, means, result

    path = tmp_path / "models.jsonl"
    inference = {"eager": 0.5, "ours": 2.5, "ours, frozen": 2.0, "Inductor": 8.0, "Inductor, frozen": 4.0}
    path.write_text(
        line("vit", "inference", left_out="it took longer than 420 s", timed=[])
        + line("vit", "inference", seconds=inference)
        + line("bert", "inference", seconds={**inference, "ours": 9.0, "ours, frozen": 8.0, "Inductor": 1.0})
        + line("vit", "training step", seconds={"eager": 2.0, "ours": 3.0})
    )
    found = {unit: result(unit, reported["seconds"]) for unit, reported in last_lines(path, Unit).items()}
    vit, bert = (found[Unit(model, "inference", "bfloat16")] for model in ("vit", "bert"))
    assert (vit.ratio, vit.against, vit.passed) == (0.5, "Inductor, frozen", True)
    assert (bert.ratio, bert.against, bert.passed) == (8.0, "Inductor", False)
    step = found[Unit("vit", "training step", "bfloat16")]
    assert (step.ratio, step.against, step.passed) == (1.5, "eager", False)
    assert {one.name: one.ratio for one in means(found)} == {
        "mean of 2, inference, bfloat16": pytest.approx(2.0),
        "mean of 1, training step, bfloat16": pytest.approx(1.5),
    }


def test_a_step_is_beside_inductor_and_one_program_beside_two() -> None:
    from whole_models import Unit, of_steps

    unit = Unit("vit", "training step", "float32")
    one, inductor = of_steps(unit, {"eager": 2.0, "ours": 4.0, "ours, one program": 3.0, "Inductor": 2.0})
    assert (one.ratio, one.against, one.passed) == (0.75, "torch.compile", True)
    assert (inductor.ratio, inductor.against, inductor.passed) == (1.5, "Inductor", False)
    assert not of_steps(unit, {"eager": 2.0, "ours": 4.0})  # of an earlier version


def test_named_units(monkeypatch: pytest.MonkeyPatch) -> None:
    from whole_models import units

    assert len(units()) == 2 * (10 * 2 + 2 * 3)
    monkeypatch.setenv("TORCH_PJRT_BENCH_MODELS", "gpt2,vit")
    monkeypatch.setenv("TORCH_PJRT_BENCH_DTYPES", "bfloat16")
    assert [(unit.model, unit.what) for unit in units()] == [
        ("vit", "inference"),
        ("vit", "training step"),
        ("gpt2", "decode"),
        ("gpt2", "prefill"),
        ("gpt2", "training step"),
    ]
