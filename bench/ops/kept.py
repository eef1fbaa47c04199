"""The results on disk, a line for each unit, of which the last counts: bench/out/ops.jsonl has those of ops."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "bench/out/ops.jsonl"
SIZES = (10, 10_000, 1_000_000)  # elements of the largest tensor; 10 are those that a sample of OpInfo has
WAYS = ("default", "compiled", "torch.compile")
LAUNCH = 50e-6  # seconds: ops that eager runs faster at the largest size touch no data, such as views
Key = TypeVar("Key")


class Unit(NamedTuple):
    op: str
    dtype: str
    size: int


@dataclass
class Timed:
    op: str
    dtype: str
    size: int
    direction: str  # "forward" or "backward"
    way: str  # one of WAYS or "Inductor"
    eager: float  # seconds of one processor
    ours: float

    @property
    def ratio(self) -> float:
        return self.ours / self.eager

    @property
    def works(self) -> bool:
        """Whether the op touches its elements, instead of only changing the layout."""
        return self.eager > LAUNCH


@dataclass
class Kept:
    timed: list[Timed] = field(default_factory=list)
    left_out: dict[Unit, str] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)  # of the last result


def last_lines(path: Path, unit: Callable[..., Key]) -> dict[Key, dict[str, Any]]:
    """Returns the last line of each unit, in the order of the file."""
    found: dict[Key, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        reported = json.loads(line)
        found.pop(key := unit(*reported["unit"]), None)
        found[key] = reported
    return found


def kept(path: Path = KEPT) -> Kept:
    all_of = Kept()
    for unit, reported in last_lines(path, Unit).items():
        all_of.machine = reported["machine"]
        all_of.units.append(unit)
        for direction, way, eager, ours in reported["timed"]:
            all_of.timed.append(Timed(*unit, direction, way, eager, ours))
        if reported.get("left_out"):
            all_of.left_out[unit] = reported["left_out"]
    return all_of
