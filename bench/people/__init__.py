"""Programs as people write them, at tiny sizes: first and second pass of each on eager CPU and on the device,
alternately, each in a process of its own with a cold cache, on one core. TORCH_PJRT_BENCH_SCRIPTS names some of them.

The comparison is of processor time of all of a process's threads, including background compiles: the time of a pass on
a core of its own, independent of other load on the machine. Wall times are printed next to it.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FILES = ("frameworks", "generating", "learning", "networks", "sciences")
ROUNDS = 2  # for each side, alternately; the minimum counts
MEAN, MOST = 1.1, 1.5


def program(name: str) -> Callable[[str], object]:
    importlib.import_module(f"people.{names('@person', '@draws')[name]}")
    return importlib.import_module("people.person").PROGRAMS[name]


def names(*decorators: str) -> dict[str, str]:
    """Returns the file of each program with one of these decorators; it reads the text, without importing libraries."""
    found = {}
    for file in FILES:
        lines = (HERE / f"{file}.py").read_text().splitlines()
        for i, line in enumerate(lines):
            if line in decorators:
                name = next(text for text in lines[i:] if text.startswith("def ")).split("(")[0][4:]
                found[name] = file
    return found


def run(name: str, device: str) -> dict[str, Any]:
    core = str(max(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ, "TORCH_PJRT_CACHE": "1", "TORCH_PJRT_CACHE_DIR": cache, "TORCH_PJRT_COMPILE": "auto",
            "OMP_NUM_THREADS": "1", "TORCH_PJRT_COMPILE_LOG_SECONDS": "0",
        }  # fmt: skip
        command = ["taskset", "-c", core, sys.executable, "-W", "ignore", "-m", "people.one", name, device]
        done = subprocess.run(command, cwd=HERE.parent, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} on {device}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def differ(ours: list[float], theirs: list[float]) -> str:
    """Returns how far apart the numbers are if they differ too much, else ""."""
    if len(ours) != len(theirs):
        return f"{len(ours)} numbers, eager {len(theirs)}"
    off = max((abs(a - b) / (1 + abs(b)) for a, b in zip(ours, theirs, strict=True)), default=0.0)
    return f"off by {off:.3g}" if off > 0.02 or math.isnan(off) else ""


def measure() -> list[Any]:
    from measure import Result

    chosen = os.environ.get("TORCH_PJRT_BENCH_SCRIPTS")
    drawn = names("@draws")
    results, ratios, wrong = [], ([], []), []
    for name in chosen.split(",") if chosen else names("@person", "@draws"):
        taken: dict[str, list[dict[str, Any]]] = {"cpu": [], "pjrt": []}
        for _ in range(ROUNDS):
            for device, runs in taken.items():
                runs.append(run(name, device))
        if name not in drawn and (text := differ(taken["pjrt"][0]["values"], taken["cpu"][0]["values"])):
            wrong.append(f"{name}: {text}")
        for i, kind in enumerate(("first pass", "second pass")):
            ours, eager = (min(run["cpu"][i] for run in taken[device]) for device in ("pjrt", "cpu"))
            wall = [min(run["wall"][i] for run in taken[device]) for device in ("pjrt", "cpu")]
            ratios[i].append(ours / eager)
            results.append(Result(f"{name}, {kind}", ours, eager, ours / eager, MOST))
            print(f"{name}, {kind}: {ours:.2f} s, eager {eager:.2f}: {ours / eager:.2f}; by the clock {wall[0]:.2f}, "
                  f"{wall[1]:.2f}; {taken['pjrt'][0]['metrics']}", flush=True)  # fmt: skip
    for kind, all_of_it in zip(("first pass", "second pass"), ratios, strict=True):
        mean = statistics.geometric_mean(all_of_it)
        results.append(Result(f"{len(all_of_it)} programs, {kind}, geometric mean", mean, 1.0, mean, MEAN, unit=""))
    if wrong:
        raise RuntimeError("other values than eager's: " + "; ".join(wrong))
    return results
