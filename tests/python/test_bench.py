"""The measurements that use the core's internals run; their results are not tested here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"

PROGRAM = """
import compile as calls, known_graph, record

for count in (1, 3):
    ours, bare = calls.nearly_nothing(count)
    ours()
    assert bare() > 0
for measurement in (known_graph.measure, record.measure):
    for result in measurement():
        assert result.ours > 0
"""


@pytest.mark.compiled
def test_measurements_run() -> None:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(BENCH)!r})\n{PROGRAM}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.thorough
def test_people_are_many_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import people

    names = people.names("@person", "@draws")
    assert len(names) >= 40
    assert sum(name.startswith("generate_") for name in names) >= 15
    reported = {device: people.run("adaptive_ode", device) for device in ("cpu", "pjrt")}
    assert people.differ(reported["pjrt"]["values"], reported["cpu"]["values"]) == ""
    assert people.differ([1.0, 2.0], [1.0, 2.1]) != ""
