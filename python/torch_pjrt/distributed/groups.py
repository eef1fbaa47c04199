"""Which ranks of a world take part in a collective together.

A process group has the ranks that its process is one of. In a world in one process that process is rank 0, and the
program that is recorded runs on all ranks: so each group stands for as many groups as the world has of its kind, those
that ``new_group`` was asked for beside it, as every ``DeviceMesh`` does for each of its dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_pjrt import _C

Ranks = tuple[int, ...]


def translated(ranks: Ranks, size: int, known: set[Ranks]) -> list[Ranks] | None:
    """The world in groups that lie as this one, if all of them are known."""
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
    """The world in the groups that were asked for last, if this one is among them."""
    last = asked[-(size // len(ranks)) :]
    if ranks not in last or sorted(rank for group in last for rank in group) != list(range(size)):
        return None
    return sorted(last)


class Groups:
    """Of one world: the groups that were asked for, and the backends that don't know yet whom they are beside."""

    def __init__(self, size: int, complete: Callable[[Any, list[list[int]]], None] | None = None) -> None:
        """``complete`` tells a backend of a world's, which others are given to ``add``, whom it is beside."""
        self.size, self.complete = size, complete
        self._asked: list[Ranks] = []
        self._waiting: list[tuple[Ranks, Any]] = []

    def ask(self, ranks: Ranks) -> None:
        """Takes down that there is a group of these ranks, in the order of its own."""
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
