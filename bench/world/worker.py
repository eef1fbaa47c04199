"""A process that steps when it is asked to, and reports how long a step took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def serve(step: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> None:
    """Steps once for each line of the input."""
    for _ in sys.stdin:
        start = clock()
        step()
        print(f"{clock() - start:.9f}", flush=True)


class Worker:
    """Runs a script that prints a line of JSON, and then serves."""

    def __init__(self, script: str, *arguments: str, **environment: str) -> None:
        command = [sys.executable, script, *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment
        )
        self._reported: dict[str, Any] | None = None

    @property
    def reported(self) -> dict[str, Any]:
        if self._reported is None:
            self._reported = json.loads(self._answer())
        return self._reported

    def _answer(self) -> str:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{") or line[:1].isdigit():
                return line
        raise RuntimeError("the process ended")

    def begin(self) -> None:
        assert self.reported is not None  # the line before the times is read
        assert self._process.stdin
        self._process.stdin.write("step\n")
        self._process.stdin.flush()

    def end(self) -> float:
        """Returns the time of the step that was begun."""
        return float(self._answer())

    def step(self) -> float:
        self.begin()
        return self.end()

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=60)


def step_of_all(workers: list[Worker]) -> float:
    """Returns the sum of the times of one step, which the workers do together."""
    for worker in workers:
        worker.begin()
    return sum(worker.end() for worker in workers)
