"""`./dev bench ops`: the stored results, and their table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
MACHINE = {"cpu": "a processor", "isa": "AVX2", "torch": "2"}


@pytest.fixture(autouse=True)
def _paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


def line(op: str, timed: list[list[Any]], left_out: str = "") -> str:
    unit = [op, "float32", 1_000_000]
    return json.dumps({"unit": unit, "timed": timed, "left_out": left_out, "machine": MACHINE}) + "\n"


def test_the_last_measurement_counts_and_what_is_slow_is_named(tmp_path: Path) -> None:
    from ops.kept import Unit, kept
    from ops.table import picture, rows, table

    path = tmp_path / "ops.jsonl"
    path.write_text(
        line("sort", [["forward", "compiled", 1.0, 9.0]])
        + line("exp", [["forward", "compiled", 1.0, 1.5], ["backward", "torch.compile", 1.0, 3.25]])
        + line("exp", [["forward", "default", 1.0, 1.5], ["backward", "torch.compile", 1.0, 3.25]])
        + line("view", [["forward", "compiled", 1e-6, 1e-5]])
        + line("log", [["forward", "torch.compile", 1.0, 1.6], ["forward", "Inductor", 1.0, 3.0]])
        + line("eigh", [], "it took longer than 40 s")
        + line("sort", [["forward", "compiled", 1.0, 1.25]])
    )
    all_of = kept(path)
    assert [one.ratio for one in all_of.timed if one.op == "sort"] == [1.25]
    assert all_of.left_out == {Unit("eigh", "float32", 1_000_000): "it took longer than 40 s"}
    text = table(all_of)
    assert "5 of (op, dtype, elements), 5 rows" in text
    assert "| exp, backward | float32 | – | – | 3.2 | – |" in text
    assert "| torch.compile, 1,000,000 elements | 2 | 3.25 | 3.25 | 3.25 | 50.0% | 0.0% |" in text
    assert "| torch.compile over Inductor, where it is behind eager | 1 | 0.53 " in text
    assert not any(f"| {op} |" in text for op in ("sort", "log", "view"))  # views do nothing that grows
    assert "- it took longer than 40 s: 1, `eigh` (float32)" in text
    machine, *lines = map(json.loads, rows(all_of).splitlines())
    assert machine["isa"] == "AVX2"
    assert ["log", "float32", 1_000_000, "forward", 1e6, None, None, 1.6, 3.0] in lines
    assert all(len(one) == len(machine["columns"]) for one in lines)
    picture(all_of, tmp_path / "ops.png")
    assert (tmp_path / "ops.png").stat().st_size > 1000


def test_the_methods_of_distributions_are_ops() -> None:
    from ops.distributions import listed

    found = listed()
    assert {"distributions.Wishart.sample", "distributions.Uniform.log_prob"} < set(found)
    assert "distributions.LogisticNormal.entropy" not in found  # it has no formula
    parameters, (value,), _ = found["distributions.Dirichlet.log_prob"].sample(100)
    assert parameters["concentration"].shape == (25, 4)
    assert found["distributions.Dirichlet.log_prob"].op(parameters, value).shape == (25,)


def test_samples_grow_so_that_they_still_fit() -> None:
    from ops.samples import larger as made_larger

    x, index = torch.arange(20.0).reshape(4, 1, 5), torch.tensor([0, 3])
    larger, (places,) = made_larger((x, (index,)), 2000)
    assert larger.shape == (40, 1, 50)
    assert torch.equal(larger[4:8, :, 5:10], x)
    assert torch.equal(places, index.repeat(10))


WORKER = """
import json, os, sys, time
for line in sys.stdin:
    op = json.loads(line)[0]
    if op == "dies":
        os._exit(3)
    if op == "hangs":
        time.sleep(100)
    print(json.dumps({"timed": [os.getpid()]}), flush=True)
"""


def test_units_are_handed_to_processes_which_may_end_or_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ops.kept import Unit, last_lines

    import ops

    monkeypatch.setattr(ops, "START", 20.0)
    script, path = tmp_path / "worker.py", tmp_path / "out/kept.jsonl"
    script.write_text(WORKER)
    units = [Unit(op, "float32", 1) for op in ("a", "b", "c", "hangs", "d", "dies", "e")]
    ops.hand_out(units, path, script, 2, most=2)
    found = last_lines(path, Unit)
    assert list(found) == units
    a, b, c, hangs, d, dies, e = found.values()
    assert a["timed"] == b["timed"] != c["timed"] != d["timed"] != e["timed"]
    assert hangs["left_out"] == "it took longer than 2 s"
    assert dies["left_out"] == "its process ended with status 3"
    monkeypatch.setenv("TORCH_PJRT_BENCH_SECONDS", "-1")
    ops.hand_out(units, path, script, 2)
    assert last_lines(path, Unit) == found
