"""Measurements and their results: two ways to do the same thing, timed alternately, as a ratio."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

Times = TypeVar("Times")


@dataclasses.dataclass
class Result:
    """One line of the table. A ratio is ours / reference; a result without a target is for information only."""

    name: str
    ours: float
    reference: float
    ratio: float
    target: float | None
    unit: str = "s"
    against: str = "eager CPU"
    ratio_of_best: float | None = None

    @property
    def passed(self) -> bool | None:
        return None if self.target is None else self.ratio <= self.target


def seconds(work: Callable[[], object], repeat: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Returns the time of one call, over `repeat` consecutive calls; in wall time, unless `clock` is another.

    Three additional calls come first if calls are short, because earlier measurements leave cold caches and sleeping
    threads.
    """
    for _ in range(min(3, repeat // 10)):
        work()
    start = clock()
    for _ in range(repeat):
        work()
    return (clock() - start) / repeat


def repeat_for(work: Callable[[], object], duration: float = 0.02) -> int:
    """Returns how often to call `work` in a row so that the clock's own cost and jitter don't matter."""
    return max(1, int(duration / max(seconds(work, 1), 1e-7)))


def in_rounds(timed: Callable[[], Times], rounds: int) -> list[Times]:
    """Returns the times of each round. Garbage collection is off meanwhile."""
    gc.collect()
    gc.disable()
    try:
        return [timed() for _ in range(rounds)]
    finally:
        gc.enable()


def interleaved(
    calls: dict[str, Callable[[], object]],
    *,
    rounds: int,
    batch_seconds: float = 0.02,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Returns seconds of a call for each of several ways to do the same, one per round. A batch of calls takes about
    `batch_seconds`."""
    counts = {name: repeat_for(call, batch_seconds) for name, call in calls.items()}
    taken = in_rounds(lambda: {name: seconds(call, counts[name], clock) for name, call in calls.items()}, rounds)
    return {name: [times[name] for times in taken] for name in calls}


def compare(
    name: str,
    ours: Callable[[], object],
    reference: Callable[[], object],
    target: float | None,
    *,
    against: str = "eager CPU",
    rounds: int = 25,
    warm: int = 3,
    per: int = 1,
) -> Result:
    """Times both alternately (A B A B …). The ratio is the median of the rounds' ratios, because other load on the
    machine affects both.

    Each call does its work `per` times, for work that is too short to be called once.
    """
    for _ in range(warm):
        ours()
        reference()
    counts = [repeat_for(ours), repeat_for(reference)]

    def timed() -> tuple[float, float]:
        return seconds(ours, counts[0]) / per, seconds(reference, counts[1]) / per

    return compare_timed(name, timed, target, against=against, rounds=rounds)


def compare_timed(
    name: str, timed: Callable[[], tuple[float, float]], target: float | None, *, against: str, rounds: int = 25
) -> Result:
    """Compares as compare() does, for work with timers of its own: `timed` returns (ours, reference) in seconds."""
    pairs = in_rounds(timed, rounds)
    ours, reference = zip(*pairs, strict=True)
    return Result(
        name,
        statistics.median(ours),
        statistics.median(reference),
        statistics.median(a / b for a, b in pairs),
        target,
        against=against,
        ratio_of_best=min(ours) / min(reference),
    )


def count(name: str, counted: int, allowed: int, unit: str) -> Result:
    """Returns a result that is a count instead of a time."""
    return Result(name, counted, allowed, counted, allowed, unit=unit, against="allowed")
