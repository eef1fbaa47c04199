"""The groups of a world's ranks that take part in a collective together.

A process group has the ranks of one group, which includes its process. In a world in one process that process is rank
0, and the recorded program runs on all ranks. Each group therefore stands for all groups of its kind, those that
``new_group`` made next to it, as every ``DeviceMesh`` does for each of its dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_pjrt import _C

Ranks = tuple[int, ...]


def translated(ranks: Ranks, size: int, known: set[Ranks]) -> list[Ranks] | None:
    """Partitions the world into translations of this group, if all of them are known; otherwise returns None."""
    groups: list[Ranks] = []
    covered: set[int] = set()
    for first in range(size):
        if first in covered:
            continue
        group = tuple(first - ranks[0] + rank for rank in ranks)
        if group not in known or covered & set(group):
            return None
        groups.append(group)
        covered |= set(group)
    return groups if covered == set(range(size)) else None


def in_a_row(ranks: Ranks, size: int, asked: list[Ranks]) -> list[Ranks] | None:
    """Partitions the world into the groups that were made last, if this one is among them; otherwise returns None."""
    last = asked[-(size // len(ranks)) :]
    if ranks not in last or sorted(rank for group in last for rank in group) != list(range(size)):
        return None
    return sorted(last)


class Groups:
    """The groups of one world that were made, and the backends whose other groups aren't known yet."""

    def __init__(self, size: int, complete: Callable[[Any, list[list[int]]], None] | None = None) -> None:
        """``complete`` passes the groups next to its own to a backend that was added by ``add``."""
        self.size, self.complete = size, complete
        self._asked: list[Ranks] = []
        self._waiting: list[tuple[Ranks, Any]] = []

    def ask(self, ranks: Ranks) -> None:
        """Records that a group of these ranks is made; the order of ``ranks`` is the group's."""
        self._asked.append(ranks)
        self._complete()

    def backend(self, ranks: Ranks) -> Any:
        made = _C.world_backend(list(ranks))
        self.add(ranks, made)
        return made

    def add(self, ranks: Ranks, backend: Any) -> None:
        self._waiting.append((ranks, backend))
        self._complete()

    def _complete(self) -> None:
        known = set(self._asked)
        for entry in list(self._waiting):
            ranks, backend = entry
            groups = translated(ranks, self.size, known) or in_a_row(ranks, self.size, self._asked)
            if groups is not None:
                (self.complete or _C.complete_world_backend)(backend, [list(group) for group in groups])
                self._waiting.remove(entry)
