"""Objects by number, because code that torch traces and compiles can hold numbers only. Objects are kept alive while
others hold them, if they were used recently, or if compiled code has their number."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Registry(Generic[T]):
    """Args:
    kept: the number of objects kept alive that nothing else holds.
    """

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.all: WeakValueDictionary[str, T] = WeakValueDictionary()
        self._recent: OrderedDict[str, T] = OrderedDict()
        self._pinned: dict[str, T] = {}
        self._numbers = itertools.count()

    def add(self, value: T) -> str:
        number = str(next(self._numbers))
        self.all[number] = value
        return number

    def __getitem__(self, number: str) -> T:
        return self.all[number]

    def use(self, number: str) -> None:
        """Marks the object as used; the least recently used one may be freed."""
        self._recent[number] = self.all[number]
        self._recent.move_to_end(number)
        while len(self._recent) > self.kept:
            self._recent.popitem(last=False)

    def pin(self, number: str) -> None:
        self._pinned[number] = self.all[number]
