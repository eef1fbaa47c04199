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
    from ops.table import table

    path = tmp_path / "ops.jsonl"
    path.write_text(
        line("sort", [["forward", "compiled", 1.0, 9.0]])
        + line("exp", [["forward", "compiled", 1.0, 1.5], ["forward", "interpreted", 1.0, 3.25]])
        + line("view", [["forward", "compiled", 1e-6, 1e-5]])
        + line("eigh", [], "it took longer than 40 s")
        + line("sort", [["forward", "compiled", 1.0, 1.25]])
    )
    all_of = kept(path)
    assert [one.ratio for one in all_of.timed if one.op == "sort"] == [1.25]
    assert all_of.left_out == {Unit("eigh", "float32", 1_000_000): "it took longer than 40 s"}
    text = table(all_of)
    assert "Of 2 (op, direction, dtype), 1 take more than 2 times" in text
    assert "| exp | float32 | 3.2 | 1.5 |" in text
    assert "| sort |" not in text
    assert "| view |" not in text  # it does nothing that grows
    assert "- it took longer than 40 s: 1, `eigh` (float32)" in text


def test_rows_are_renewed_where_some_ops_were_measured(tmp_path: Path) -> None:
    from ops.kept import kept
    from ops.table import renewed, table

    path = tmp_path / "ops.jsonl"
    path.write_text(
        line("sort", [["forward", "compiled", 1.0, 9.0], ["backward", "interpreted", 1.0, 2.5]])
        + line("exp", [["forward", "compiled", 1.0, 3.25]])
        + line("log", [["forward", "compiled", 1.0, 1.25]])
    )
    made = table(kept(path))
    path.write_text(
        line("sort", [["forward", "compiled", 1.0, 1.5], ["forward", "interpreted", 1.0, 1.0]])
        + line("exp", [["forward", "compiled", 1.0, 2.25], ["forward", "interpreted", 1.0, 1.0]])
        + line("log", [["forward", "compiled", 1.0, 2.75]])
    )
    text = renewed(made, kept(path))
    rows = [row for row in text.splitlines() if "| float32 |" in row]
    assert rows == [
        "| log | float32 | – | 2.8 |",
        "| sort, backward | float32 | 2.5 | – |",
        "| exp | float32 | 1.0 | 2.2 |",
    ]
    assert "Of 4 (op, direction, dtype), 3 take more than 2 times" in text
    assert text.split("| op |")[0].split("take more")[1] == made.split("| op |")[0].split("take more")[1]
    assert text.split("Not measured")[1] == made.split("Not measured")[1]


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
