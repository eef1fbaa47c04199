"""Runs a part: its items in other processes, within their own limits and the part's, with a file that is always valid.

An item that hangs or crashes its process is reported as such, and the next item gets another process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
START = 120.0  # seconds for the imports of a process


@dataclasses.dataclass
class Outcome:
    """The outcome of an item. status: passed, failed, skipped, over its limit, cut short by its part's limit, died."""

    name: str
    status: str
    seconds: float = 0.0
    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: str = ""


class Died(Exception):
    """Raised if the process has ended."""


class Late(Exception):
    """Raised if the process did not answer in time."""


class Worker:
    """A process of worker.py. Deadlines are of time.monotonic()."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path) -> None:
        reading, writing = os.pipe()
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                [*command[:2], command[2], str(writing), *command[3:]],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                pass_fds=[writing],
                process_group=0,  # so that its children end with it
            )
        os.close(writing)
        self.reading, self.rest = reading, b""
        self.progress: dict[str, Any] = {}

    def hear(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self.rest:
            left = deadline - time.monotonic()
            if not select.select([self.reading], [], [], min(max(left, 0.0), 0.5))[0]:
                if self.process.poll() is not None:  # a child of it still holds the pipe
                    raise Died(in_words(self.process.returncode))
                if left <= 0:
                    raise Late
                continue
            if not (more := os.read(self.reading, 1 << 16)):
                raise Died(in_words(self.process.wait()))
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def ask(self, verb: str, name: str, deadline: float) -> dict[str, Any]:
        """Returns its answer; its reports meanwhile are in `progress`."""
        assert self.process.stdin
        self.progress = {}
        try:
            self.process.stdin.write(f"{verb} {name}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Died(in_words(self.process.wait())) from None
        while "end" not in (message := self.hear(deadline)):
            self.progress.update(message.get("progress", {}))
        return message

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        self.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()  # type: ignore[union-attr]
        os.close(self.reading)


def in_words(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


@dataclasses.dataclass
class Part:
    """A part of the run: the file of its items, and the share of the remaining time that it may take."""

    name: str
    module: str  # a file
    share: float


class Conductor:
    """One part's run. `file` is written after each item. stop() ends the run from outside, close() its processes."""

    def __init__(
        self,
        part: Part,
        arguments: Sequence[str],
        *,
        deadline: float,
        folder: Path,
        wanted: Callable[[str], bool] = lambda name: True,
        cores: int = 1,
        one_process: bool = False,
    ) -> None:
        """`one_process`: items that are prepared side by side don't get a process each."""
        self.part, self.deadline, self.wanted, self.cores = part, deadline, wanted, cores
        self.one_process = one_process
        self.command = [sys.executable, str(HERE / "worker.py"), part.module, *arguments]
        self.file, self.log = folder / f"{part.name}.json", folder / "log.txt"
        self.started = time.monotonic()
        self.limit = deadline - self.started
        self.items: list[dict[str, Any]] = []
        self.outcomes: list[Outcome] = []
        self.workers: list[Worker] = []
        self.say: Callable[[Outcome], None] = lambda outcome: None

    # --- the file ---

    def result(self) -> dict[str, Any]:
        done = {outcome.name for outcome in self.outcomes}
        return {
            "part": self.part.name,
            "limit": round(self.limit, 1),
            "seconds": round(time.monotonic() - self.started, 1),
            "outcomes": [dataclasses.asdict(outcome) for outcome in self.outcomes],
            "not_reached": [item["name"] for item in self.items if item["name"] not in done],
        }

    def write(self) -> None:
        beside = self.file.with_suffix(".part")
        beside.write_text(json.dumps(self.result(), indent=1))
        beside.replace(self.file)

    def note(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.say(outcome)
        self.write()

    # --- processes ---

    def start(self, environment: dict[str, str]) -> Worker:
        """Returns a process that has imported everything; it lists the items if they are unknown.

        Raises:
            Died, Late: it ended or did not answer.
        """
        worker = Worker(self.command, environment, self.log)
        self.workers.append(worker)
        try:
            items = worker.hear(min(self.deadline, time.monotonic() + START))["items"]
        except (Died, Late):
            self.let_go(worker)
            raise
        if not self.items:
            self.items = [item for item in items if self.wanted(item["name"])]
            self.write()
        return worker

    def let_go(self, worker: Worker | None) -> None:
        if worker in self.workers:
            self.workers.remove(worker)
            worker.end()

    def stop(self) -> None:
        """Ends the run from a signal's handler: running items are cut short, and no others begin."""
        self.deadline = 0.0
        for worker in list(self.workers):
            worker.kill()

    def close(self) -> None:
        while self.workers:
            self.workers.pop().end()

    def asked(self, worker: Worker, verb: str, item: dict[str, Any]) -> tuple[Outcome, bool]:
        """Returns an item's outcome, and whether the process can continue."""
        start = time.monotonic()
        try:
            answer = worker.ask(verb, item["name"], min(start + item["limit"], self.deadline))
        except (Late, Died) as why:
            self.let_go(worker)
            status = "cut short" if self.over() else "over its limit" if isinstance(why, Late) else "died"
            error = str(why) or f"after {time.monotonic() - start:.0f} s"
            return Outcome(item["name"], status, time.monotonic() - start, worker.progress, error), False
        values = {**worker.progress, **answer.get("values", {})}
        return Outcome(item["name"], answer["status"], answer["seconds"], values, answer.get("error", "")), True

    # --- the order ---

    def run(self) -> None:
        self.write()
        worker: Worker | None = None
        environment: dict[str, str] = {}
        try:
            worker = self.start(environment)
            for items in self.batches():
                if self.over():
                    return
                if items[0]["together"] > 1 and not (self.one_process and len(items) == 1):
                    self.let_go(worker)
                    worker = None
                    self.side_by_side(items)
                    continue
                if worker and items[0]["environment"] != environment:
                    self.let_go(worker)
                    worker = None
                environment = items[0]["environment"]
                worker = worker or self.start(environment)
                outcome, goes_on = self.asked(worker, "run", items[0])
                self.note(outcome)
                worker = worker if goes_on else None
        except (Died, Late) as why:
            late = "the process did not start in time"
            self.note(Outcome("start", "cut short" if self.over() else "died", error=str(why) or late))
        finally:
            self.close()
            self.write()

    def over(self) -> bool:
        return time.monotonic() >= self.deadline

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        """Yields items in order: one by one, or as many of a group as are prepared together."""
        batch: list[dict[str, Any]] = []
        for item in self.items:
            room = 1 if self.one_process else max(1, min(item["together"], self.cores // 2))
            if batch and (item["group"] != batch[0]["group"] or not item["group"] or len(batch) >= room):
                yield batch
                batch = []
            batch.append(item)
        if batch:
            yield batch

    def side_by_side(self, items: list[dict[str, Any]]) -> None:
        """Runs each item in a process of its own: they are prepared at the same time, then run one after the other."""

        def prepare(item: dict[str, Any]) -> tuple[Outcome, Worker | None]:
            begun = time.monotonic()
            try:
                worker = self.start(item["environment"])
            except (Died, Late) as why:
                status = "cut short" if self.over() else "died"
                return Outcome(item["name"], status, time.monotonic() - begun, error=str(why) or "no start"), None
            outcome, goes_on = self.asked(worker, "prepare", item)
            return outcome, worker if goes_on else None

        with ThreadPoolExecutor(len(items)) as pool:
            ready = list(pool.map(prepare, items))
        for item, (outcome, worker) in zip(items, ready, strict=True):
            if worker and outcome.status == "passed":
                if self.over():
                    outcome.status = "cut short"
                else:
                    prepared = outcome
                    outcome, _ = self.asked(worker, "run", item)
                    outcome.values = {**prepared.values, **outcome.values}
                    outcome.seconds += prepared.seconds
            self.note(outcome)
            self.let_go(worker)
