"""Makes docs/zoo.md from docs/zoo.json: a row for each entry point, the cells that aren't right, and the models."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from zoo.cell import OUTCOMES, Cell, columns
from zoo.kept import ROOT, Outcomes, document

TABLE = ROOT / "docs/zoo.md"
START, END = "<!-- made by ./dev zoo -->\n", "<!-- end -->"
SHOWN = 6  # models listed per reason


def known(outcomes: Outcomes) -> Outcomes:
    """Returns the outcomes without models that don't run in eager mode."""
    return {cell: outcome for cell, outcome in outcomes.items() if outcome["outcome"] in OUTCOMES}


def entry_points(outcomes: Outcomes) -> Iterator[str]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for cell, outcome in outcomes.items():
        counts[cell.column][outcome["outcome"]] += 1
    yield f"| entry point | cells | {' | '.join(OUTCOMES)} | refused |"
    yield "| --- " * (3 + len(OUTCOMES)) + "|"
    for column in columns():
        count = counts[column.column]
        total = sum(count.values())
        share = f"{100 * count['refused'] / total:.1f} %" if total else "–"
        yield f"| {column.column} | {total} | {' | '.join(str(count[name]) for name in OUTCOMES)} | {share} |"


def reason(words: str) -> str:
    """Returns the message without names and numbers that differ between models."""
    return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "N", re.sub(r"'[^']{1,80}'", "'…'", words))[:110]


def not_right(outcomes: Outcomes) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell, outcome in outcomes.items():
        if outcome["outcome"] in OUTCOMES[2:]:
            groups[outcome["outcome"], reason(outcome.get("words", ""))].append(cell)
    if not groups:
        yield "Nothing."
        return
    yield "| outcome | cells | words of the first | entry points | models |"
    yield "| --- | --- | --- | --- | --- |"
    order = {name: i for i, name in enumerate(reversed(OUTCOMES))}
    for (outcome, _), cells in sorted(groups.items(), key=lambda item: (order[item[0][0]], -len(item[1]))):
        words = outcomes[cells[0]].get("words", "")[:200].replace("|", "\\|").replace("<", "\\<")
        where = ", ".join(dict.fromkeys(cell.column for cell in cells))
        models = list(dict.fromkeys(cell.model for cell in cells))
        more = f" and {len(models) - SHOWN} more" if len(models) > SHOWN else ""
        yield f"| {outcome} | {len(cells)} | {words} | {where} | {', '.join(models[:SHOWN])}{more} |"


def models(outcomes: Outcomes) -> Iterator[str]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for cell, outcome in outcomes.items():
        found[cell.model][outcome["outcome"]] += 1
    families: dict[str, list[str]] = defaultdict(list)
    for name, counts in sorted(found.items()):
        family, _, rest = name.partition("/")
        right = counts["right"] + counts["slow"]
        total = sum(counts.values())
        families[family].append(rest if right == total else f"{rest} ({right} of {total})")
    for family, names in families.items():
        yield f"**{family}**, {len(names)}: {', '.join(names)}."
        yield ""


def text(outcomes: Outcomes) -> str:
    outcomes = known(outcomes)
    parts = ["", *entry_points(outcomes), "", "## What is not right", "", *not_right(outcomes), "", "## Models", ""]
    parts += ["In brackets how many of a model's cells are right, where some are not.", "", *models(outcomes)]
    return "\n".join(parts)


def write(path: Path = TABLE) -> None:
    """Writes the part of the document that docs/zoo.json determines."""
    before, _, rest = path.read_text().partition(START)
    path.write_text(before + START + text(document()) + END + rest.partition(END)[2])
