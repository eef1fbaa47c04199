"""Hands cells to worker processes, one cell at a time, and starts another worker after a crash or a time limit."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from zoo import entries
from zoo.cell import Cell
from zoo.entries import Settings
from zoo.kept import ROOT

LIMIT = 240.0  # seconds of processor time for one cell
HANGS = 5  # times the limit by the clock: other work may hold the processors
MOST = 60  # cells of one worker, whose memory accumulates


# Compiles in a third of the time; programs then differ from the usual ones, and are not timed.
QUICK = {"TORCH_PJRT_XLA_OPTIONS": "xla_backend_optimization_level=0"}


class Worker:
    """A process that computes cells of entry points with the same environment."""

    def __init__(self, environment: tuple[tuple[str, str], ...], settings: Settings) -> None:
        self.environment, self.cells = environment, 0
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, closed by end()
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        own = {"OMP_NUM_THREADS": "1", "TORCH_PJRT_COMPILE_LOG_SECONDS": "0", "TQDM_DISABLE": "1", "PYTHONPATH": paths}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "zoo.worker", json.dumps(vars(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **own, **dict(environment), **({} if settings.is_timed else QUICK)},
            cwd=ROOT,
        )

    def outcome(self, cell: Cell, limit: float) -> dict[str, Any]:
        """Returns the worker's outcome for a cell; after "crashed" the worker can't be used any more."""
        assert self.process.stdin
        assert self.process.stdout
        self.cells += 1
        try:
            self.process.stdin.write(json.dumps(cell._asdict()) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"outcome": "crashed", "words": self.last_words()}
        begun, used = time.monotonic(), self.processor_time()
        while not select.select([self.process.stdout], [], [], min(limit, 1.0))[0]:
            if self.processor_time() - used > limit or time.monotonic() - begun > HANGS * limit:
                self.end()
                return {"outcome": "crashed", "words": f"took more than {limit:.0f} s"}
        line = self.process.stdout.readline()
        if not line:
            return {"outcome": "crashed", "words": self.last_words()}
        reported: dict[str, Any] = json.loads(line)
        return reported

    def processor_time(self) -> float:
        """Returns the seconds of processor time that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def last_words(self) -> str:
        code = self.process.wait()
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self.errors.seek(0)
        text = self.errors.read().decode(errors="replace").strip().splitlines()
        return " ".join([name, *text[-3:]])[:300]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


def conduct(
    cells: Iterable[Cell],
    reported: Callable[[Cell, dict[str, Any]], None],
    *,
    limit: float = LIMIT,
    until: float = float("inf"),
    settings: Settings = entries.settings,
) -> None:
    """Computes cells in their order and reports each outcome immediately. No cell begins after the time `until`.

    A model that doesn't run in eager mode, forward or as a step, is not tried at the other entry points.
    """
    worker: Worker | None = None
    none: dict[tuple[str, str, str], str] = {}
    try:
        for cell in cells:
            if time.monotonic() > until:
                break
            key = (cell.model, cell.what, cell.dtype)
            if key in none:
                reported(cell, {"outcome": "none", "words": none[key]})
                continue
            environment = entries.ENTRIES[cell.entry].environment
            if worker and (worker.environment != environment or worker.cells >= MOST):
                worker.end()
                worker = None
            worker = worker or Worker(environment, settings)
            outcome = worker.outcome(cell, limit)
            if outcome["outcome"] == "crashed":
                worker.end()
                worker = None
            elif outcome["outcome"] == "none":
                none[key] = outcome["words"]
            reported(cell, outcome)
    finally:
        if worker:
            worker.end()
