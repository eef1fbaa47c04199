"""A cell of the table, and the cells that there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zoo.entries import ENTRIES

OUTCOMES = ("right", "slow", "data-dependent", "refused", "wrong", "crashed")


class Cell(NamedTuple):
    """One model at one entry point."""

    model: str
    entry: str
    what: str  # "forward" or "step"
    dtype: str

    @property
    def column(self) -> str:
        return f"{self.entry} {self.what}{'' if self.dtype == 'float32' else f' {self.dtype}'}"


def columns(entries: Iterable[str] = ENTRIES, dtypes: Iterable[str] = ("float32", "bfloat16")) -> Iterator[Cell]:
    """A cell of each column, without a model."""
    for name in entries:
        entry = ENTRIES[name]
        for dtype in entry.dtypes:
            if dtype in dtypes:
                for what in entry.whats:
                    yield Cell("", name, what, dtype)
