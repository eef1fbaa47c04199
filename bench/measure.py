"""How a measurement is taken and what it says: two ways of doing the same thing, in turns, as a ratio."""

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
    """One line of the table. A ratio is ours / reference; a result without a target is for information."""

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
    """Time of one call, over `repeat` calls in a row; of the wall, unless it is another clock's.

    Of short calls, three more come first: what was measured before left caches and sleeping threads behind.
    """
    for _ in range(min(3, repeat // 10)):
        work()
    start = clock()
    for _ in range(repeat):
        work()
    return (clock() - start) / repeat


def repeat_for(work: Callable[[], object], duration: float = 0.02) -> int:
    """How often to call `work` in a row so that the clock's own cost and its jitter don't matter."""
    return max(1, int(duration / max(seconds(work, 1), 1e-7)))


def in_rounds(timed: Callable[[], Times], rounds: int) -> list[Times]:
    """What each of the rounds took. No garbage is collected meanwhile."""
    gc.collect()
    gc.disable()
    try:
        return [timed() for _ in range(rounds)]
    finally:
        gc.enable()


def in_turns(
    calls: dict[str, Callable[[], object]],
    *,
    rounds: int,
    turn: float = 0.02,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of a call, of each of several ways of doing the same, one time a round. A turn takes about `turn`."""
    counts = {name: repeat_for(call, turn) for name, call in calls.items()}
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
    """Times both in turns (A B A B …): the ratio is the median of the rounds' ratios, as a busy machine meets both.

    Each call does its work `per` times, for what is too short to be called alone.
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
    """As compare(), for what takes its own time: `timed` returns (ours, reference) in seconds."""
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
    """A result that is a number of something, not a time."""
    return Result(name, counted, allowed, counted, allowed, unit=unit, against="allowed")
