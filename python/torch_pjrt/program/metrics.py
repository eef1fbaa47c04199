"""The counters of ``metrics()``, as a dict that prints as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Metrics(dict[str, Any]):
    """A dict that ``print`` shows as a table."""

    def __str__(self) -> str:
        rows = list(_rows(self))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(f"{name:<{widths[0]}}  {value:>{widths[1]}}" for name, value in rows)


def _rows(counts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in counts.items():
        if isinstance(value, dict):  # by op, by cause
            yield name, str(sum(value.values()))
            yield from ((f"  {each}", str(count)) for each, count in sorted(value.items(), key=lambda row: -row[1]))
        else:
            yield name, f"{value:.3f}" if isinstance(value, float) else str(value)
