"""Runs the tests on the GPU: an item is a folder of tests/; folders that never ran on a GPU come first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from worker import Item, Setting, Values

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEPT = ROOT / "docs/gpu.json"  # results of earlier runs
# Folders that ran in November 2026, before results were kept.
RAN = {"tests/capture", "tests/decompositions", "tests/device", "tests/dynamo", "tests/engine", "tests/ops"}
# The most informative first; others follow.
ORDER = [
    "models",
    "composites",
    "errors",
    "traces",
    "kernels",
    "report",
    "adapt",
    "libraries",
    "engine",
    "dynamo",
    "capture",
]
NO_DEVICE = {"tests/graph", "tests/hlo", "tests/pjrt", "tests/python"}  # tests of C++ without a device, and of tools
PROCESSES = 8  # each has a client with a pool of the GPU's memory
REHEARSED = "tests/adapt/test_flops.py"


def ran() -> set[str]:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    outcomes = kept.get("parts", {}).get("tests", {}).get("outcomes", [])
    return RAN | {outcome["name"] for outcome in outcomes if outcome["status"] in ("passed", "failed")}


def items(setting: Setting) -> list[Item]:
    if setting.tiny:
        return [Item(REHEARSED, partial(run, REHEARSED), 120)]
    folders = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/**/test_*.py")}
    rooms = {"/".join(folder.split("/")[:2]) for folder in folders} - NO_DEVICE
    before, places = ran(), {f"tests/{name}": place for place, name in enumerate(ORDER)}
    order = sorted(rooms, key=lambda room: (room in before, places.get(room, len(places)), room))
    return [Item(room, partial(run, room), 75) for room in order]


def run(room: str, setting: Setting) -> Values:
    """Runs pytest in a process of its own; finished tests are reported meanwhile."""
    log = Path(tempfile.gettempdir(), f"told-{os.getpid()}")
    log.write_text("")
    parallel = ["-n", str(min(PROCESSES, os.cpu_count() or 1))] if not setting.tiny else []
    command = [sys.executable, "-m", "pytest", "-p", "report_tests", f"--report-tests={log}", "-p", "no:cacheprovider",
               *parallel, "-m", "not alone", "--timeout=100", room]  # fmt: skip
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    if setting.device == "cuda":
        environment.setdefault("TORCH_PJRT_CLIENT_OPTIONS", "preallocate=false")
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    while process.poll() is None:
        time.sleep(1.0)
        setting.report(counted(log))
    values = counted(log)
    log.unlink()
    setting.report(values)
    if process.returncode:
        failed = values["failed"]
        raise AssertionError(f"{len(failed)} failed" if failed else f"pytest ended with status {process.returncode}")
    return values


def counted(log: Path) -> Values:
    """Returns the number of each outcome, and the failed tests with their last lines."""
    values: Values = {"passed": 0, "skipped": 0, "failed": {}}
    for line in log.read_text().splitlines():
        outcome, name, words = json.loads(line)
        if outcome == "failed":
            values["failed"][name] = words
        else:
            values[outcome] += 1
    return values
