"""Computes the cells that are not known yet, and writes docs/zoo.json and docs/zoo.md. See ``./dev zoo --help``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from typing import Any

from zoo import kept, table
from zoo.cell import OUTCOMES, Cell, columns
from zoo.conduct import LIMIT, conduct
from zoo.entries import ENTRIES, Settings
from zoo.model import matching


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev zoo", description="Models at every entry point, beside CPU eager.")
    parser.add_argument(
        "filter", nargs="?", default="", help="a part of a model's name, such as timm/ or bert; or a pattern"
    )
    parser.add_argument("--entry", default=",".join(ENTRIES), help="entry points, with commas: %(default)s")
    parser.add_argument("--dtype", default="float32,bfloat16", help="dtypes, with commas: %(default)s")
    parser.add_argument("--what", default="forward,step", help="forward, step, or both: %(default)s")
    parser.add_argument("--again", default="", help="outcomes to compute once more, with commas, or all")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of processor time of a cell: %(default)s")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="none begins after these")
    parser.add_argument("--keep", action="store_true", help="writes docs/zoo.json and docs/zoo.md of all that is known")
    parser.add_argument("--quick", action="store_true", help="XLA optimizes nothing, and no call is timed")
    parser.add_argument("--every", type=int, default=1, help="one in so many models alone")
    return parser.parse_args()


def wanted(given: argparse.Namespace) -> list[Cell]:
    """The cells that are asked for: model by model, all entry points of one environment together."""
    names, absent = [], []
    for name, reason in matching(given.filter):
        (absent if reason else names).append(name if reason is None else f"{name}: {reason}")
    for line in absent:
        print(f"left out: {line}", file=sys.stderr)
    entries = given.entry.split(",")
    if unknown := set(entries) - set(ENTRIES):
        sys.exit(f"no entry point is called {', '.join(unknown)}; there are {', '.join(ENTRIES)}")
    chosen = [column for column in columns(entries, given.dtype.split(",")) if column.what in given.what.split(",")]
    groups = dict.fromkeys(ENTRIES[column.entry].environment for column in chosen)
    return [
        column._replace(model=name)
        for environment in groups
        for name in names[:: given.every]
        for column in chosen
        if ENTRIES[column.entry].environment == environment
    ]


def main() -> None:
    given = arguments()
    known = kept.lines()
    again = set(given.again.split(",")) - {""}
    again = set(OUTCOMES) if "all" in again else again
    left = [cell for cell in wanted(given) if cell not in known or known[cell]["outcome"] in again]
    settings = Settings(is_timed=not given.quick)
    if any(cell.entry == "pjrt-run" for cell in left):
        from tests.files import library

        settings.pjrt_run = str(library.installed() / "bin/pjrt-run")
    started, counts, new = time.monotonic(), Counter[str](), dict[Cell, dict[str, Any]]()

    def reported(cell: Cell, outcome: dict[str, Any]) -> None:
        kept.append(cell, outcome)
        new[cell] = outcome
        counts[outcome["outcome"]] += 1
        if outcome["outcome"] in OUTCOMES[2:]:
            print(f"\r\033[K{outcome['outcome']}: {cell.model}, {cell.column}: {outcome['words'][:200]}")
        done = sum(counts.values())
        if sys.stderr.isatty() or done % 50 == 0:
            took = time.monotonic() - started
            share = " ".join(f"{name} {counts[name]}" for name in OUTCOMES if counts[name])
            line = f"[{'#' * (30 * done // len(left)):30}] {done} of {len(left)}, {took / 60:.0f} min: {share}"
            print(f"\r\033[K{line}", end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)

    conduct(left, reported, limit=given.limit, until=started + 60 * given.minutes, settings=settings)
    before, now = kept.document(), kept.lines()
    worse = kept.worse(new, before)
    if given.keep:
        kept.write_document({**before, **now})
        table.write()
    for cell in worse:
        print(f"was right: {cell.model}, {cell.column}: {new[cell]['words']}")
    if worse:
        sys.exit(f"{len(worse)} cells that were right are no longer")


if __name__ == "__main__":
    main()
