"""Every op of PyTorch's OpInfo database and the methods of torch.distributions against eager, forward and backward.

Each is measured three ways: on the device by the default policy, warm; on the device, compiled; and by
`torch.compile(backend="pjrt")` on CPU tensors. Where this last way takes more than 1.5 times eager's time, Inductor is
measured too, whose compiles take seconds.

Units (op, dtype, size) come in a random order that is always the same, so that a part of them stands for all. Results
are stored in bench/out/ops.jsonl, a line for each unit, and a later run continues from there: remove the file to
measure everything again, or name ops. The ops run in a process of their own, which may hang or die: that op is then
named, and another process continues with the next. TORCH_PJRT_BENCH_OPS names some of the ops (these are measured
again), TORCH_PJRT_BENCH_SIZES some of the sizes, TORCH_PJRT_BENCH_DTYPES some of the dtypes, and
TORCH_PJRT_BENCH_SECONDS ends the run. `./dev python bench/ops` writes docs/ops.jsonl, its picture docs/ops.png, and the
slowest ops to docs/ops.md.
"""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machine import facts
from measure import Result
from ops.kept import KEPT, SIZES, WAYS, Timed, Unit, kept

DTYPES = ("float32", "bfloat16", "int64")
# Memory stays with the process: otherwise its other use decides which side pays for page faults of fresh memory.
MALLOC = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=17179869184:glibc.malloc.arena_max=1"
LIMIT = 120.0  # seconds for one unit; slower ones are named
START = 180.0  # seconds until a process listens
MOST_UNITS = 150  # of one process, whose memory keeps programs
WORKER = Path(__file__).resolve().parent / "worker.py"


class Worker:
    """A process that measures units, one after the other."""

    def __init__(self, script: Path, threads: int) -> None:
        last = ",".join(map(str, sorted(os.sched_getaffinity(0))[-threads:]))
        self.process = subprocess.Popen(
            ["taskset", "-c", os.environ.get("TORCH_PJRT_BENCH_PROCESSOR", last), sys.executable, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "OMP_NUM_THREADS": str(threads),
                "TORCH_PJRT_CACHE": "0",
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
                "GLIBC_TUNABLES": MALLOC,
            },
        )
        self.done = 0

    def measure(self, unit: tuple[str | int, ...], limit: float) -> dict[str, Any]:
        """Returns its answer for the unit: "timed", or the reason in "left_out"."""
        assert self.process.stdin
        assert self.process.stdout
        most = limit + (START if self.done == 0 else 0)
        self.done += 1
        try:
            self.process.stdin.write(json.dumps(unit).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return self.gone()
        if not select.select([self.process.stdout], [], [], most)[0]:
            self.end()
            return {"timed": [], "left_out": f"it took longer than {limit:g} s"}
        line = self.process.stdout.readline()
        if not line:
            return self.gone()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def gone(self) -> dict[str, Any]:
        return {"timed": [], "left_out": f"its process ended with status {self.process.wait()}"}

    def serves(self, most: int) -> bool:
        return self.process.poll() is None and self.done < most

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def hand_out(
    units: Sequence[tuple[str | int, ...]], path: Path, script: Path, limit: float, *, threads: int = 1, most: int = 1
) -> None:
    """Has processes measure the units, up to `most` of them each, and appends the answers to the file, a line for each.

    It stops after TORCH_PJRT_BENCH_SECONDS.
    """
    ends = time.monotonic() + float(os.environ.get("TORCH_PJRT_BENCH_SECONDS", "inf"))
    path.parent.mkdir(exist_ok=True)
    machine = facts()
    worker: Worker | None = None
    for i, unit in enumerate(units):
        if time.monotonic() > ends:
            print(f"{len(units) - i} of {len(units)} are left for the next run", file=sys.stderr)
            break
        if worker is None or not worker.serves(most):
            if worker is not None:
                worker.end()
            worker = Worker(script, threads)
        answer = worker.measure(unit, limit)
        with path.open("a") as file:
            file.write(json.dumps({"unit": unit, **answer, "machine": machine}) + "\n")
    if worker is not None:
        worker.end()


def named(names: str | None, of: Any) -> list[str]:
    return [str(x) for x in of if not names or str(x) in names.split(",")]


def wanted() -> list[Unit]:
    """Returns the units to measure."""
    import torch

    from ops.distributions import listed
    from tests.ops.opinfo import OPS, UNSUPPORTED

    anew = bool(os.environ.get("TORCH_PJRT_BENCH_OPS"))
    done = set() if anew else set(kept().units)
    every = {name: op for name, op in (OPS | listed()).items() if name not in UNSUPPORTED}
    units = [
        Unit(op, dtype, int(size))
        for size in named(os.environ.get("TORCH_PJRT_BENCH_SIZES"), SIZES)
        for dtype in named(os.environ.get("TORCH_PJRT_BENCH_DTYPES"), DTYPES)
        for op in named(os.environ.get("TORCH_PJRT_BENCH_OPS"), every)
        if every[op].supports_dtype(getattr(torch, dtype), "cpu")
    ]
    random.Random(0).shuffle(units)
    return [unit for unit in units if unit not in done]


def measure() -> list[Result]:
    """Returns the slowest result of each op."""
    hand_out(wanted(), KEPT, WORKER, LIMIT, most=MOST_UNITS)
    results: dict[str, Result] = {}
    for one in slowest(kept().timed):
        label = f"{one.op}, {one.direction}, {one.dtype}, {one.size:,}, {one.way}"
        results.setdefault(f"{one.op} {one.way}", Result(label, one.ours, one.eager, one.ratio, None))
    return list(results.values())[:40]


def slowest(timed: list[Timed]) -> list[Timed]:
    """Returns the results of our ways for ops that do work, the slowest first."""
    return sorted((one for one in timed if one.way in WAYS and one.works), key=lambda one: -one.ratio)
