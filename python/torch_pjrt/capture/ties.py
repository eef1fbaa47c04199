"""Places that held one tensor when a function was captured: tied weights, a module's parameter in an optimizer's group.

The program has one argument for them, and is valid as long as they hold one tensor, whichever it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from operator import getitem, is_
from types import CellType
from typing import Any


@dataclass
class Place:
    """A place of a tensor: ``container[key]``, or a cell."""

    name: str
    container: Any
    key: Any

    def read(self) -> Any:
        try:
            if isinstance(self.container, CellType):
                return self.container.cell_contents
            return self.container[self.key]
        except (LookupError, ValueError):
            return None


class Ties:
    """Pairs of places, compared in each call by loops in C, because hundreds of parameters are common.

    An optimizer's group whose parameters are all tied is iterated, which is faster than to index each. Other code
    checks that its length is unchanged.
    """

    def __init__(self, pairs: Iterable[tuple[Place, Place]]) -> None:
        self.variables: list[tuple[Place, Place]] = []  # pairs of which one is a cell
        by_container: dict[int, list[tuple[Place, Place]]] = {}
        for pair in pairs:
            if any(isinstance(place.container, CellType) for place in pair):
                self.variables.append(pair)
            else:
                by_container.setdefault(id(pair[1].container), []).append(pair)
        self.walked: list[list[Any]] = []
        loose: list[tuple[Place, Place]] = []
        self.pairs: list[tuple[Place, Place]] = []
        for group in by_container.values():
            container = group[0][1].container
            if isinstance(container, list) and [other.key for _, other in group] == list(range(len(container))):
                self.walked.append(container)
                self.pairs += group
            else:
                loose += group
        self.pairs += loose
        self.containers = [place.container for place, _ in self.pairs]
        self.keys = [place.key for place, _ in self.pairs]
        self.other_containers = [other.container for _, other in loose]
        self.other_keys = [other.key for _, other in loose]

    def __bool__(self) -> bool:
        return bool(self.pairs or self.variables)

    def hold(self) -> bool:
        others = chain(*self.walked, map(getitem, self.other_containers, self.other_keys))
        try:
            return all(map(is_, map(getitem, self.containers, self.keys), others)) and all(
                place.read() is other.read() for place, other in self.variables
            )
        except LookupError:  # an entry was removed
            return False

    def broken(self) -> str:
        """Returns the names of two places that hold different tensors."""
        pairs = [*self.pairs, *self.variables]
        pair = next((pair for pair in pairs if pair[0].read() is not pair[1].read()), pairs[0])
        return " and ".join(f"'{place.name}'" for place in pair)
