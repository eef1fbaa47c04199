"""Outcomes on disk: each as a line as soon as it is known, and docs/zoo.json, the letters of all stored outcomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zoo.cell import OUTCOMES, Cell, columns

ROOT = Path(__file__).resolve().parents[1]
LINES = ROOT / "build/zoo/cells.jsonl"
DOCUMENT = ROOT / "docs/zoo.json"
LETTERS = {
    "right": "r", "slow": "s", "data-dependent": "d", "refused": "f", "wrong": "W", "crashed": "C", "none": "-",
}  # fmt: skip
UNKNOWN = "."
Outcomes = dict[Cell, dict[str, Any]]


def append(cell: Cell, outcome: dict[str, Any], path: Path = LINES) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"cell": cell, **outcome}) + "\n")


def lines(path: Path = LINES) -> Outcomes:
    """Returns the last outcome of each cell. A line that the end of a run cut off is left out."""
    found: Outcomes = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            reported = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[Cell(*reported.pop("cell"))] = reported
    return found


def document(path: Path = DOCUMENT) -> Outcomes:
    """Returns the outcomes that are stored in the repository."""
    if not path.exists():
        return {}
    reported = json.loads(path.read_text())
    outcomes = {letter: outcome for outcome, letter in LETTERS.items()}
    cells = {cell.column: cell for cell in columns()}
    found: Outcomes = {}
    for model, row in reported["rows"].items():
        for column, letter in zip(reported["columns"], row, strict=True):
            if letter != UNKNOWN and column in cells:
                words = reported["words"].get(model, {}).get(column, "")
                found[cells[column]._replace(model=model)] = {"outcome": outcomes[letter], "words": words}
    return found


def write_document(outcomes: Outcomes, path: Path = DOCUMENT) -> None:
    """Writes the JSON: a row of letters for each model, and the messages of cells that aren't right."""
    names = [cell.column for cell in columns()]
    rows: dict[str, str] = {}
    words: dict[str, dict[str, str]] = {}
    for model in dict.fromkeys(cell.model for cell in outcomes):
        row = ""
        for cell in columns():
            outcome = outcomes.get(cell._replace(model=model))
            row += LETTERS[outcome["outcome"]] if outcome else UNKNOWN
            if outcome and outcome.get("words") and outcome["outcome"] in OUTCOMES[2:]:
                words.setdefault(model, {})[cell.column] = outcome["words"][:200]
        if row.strip(UNKNOWN + LETTERS["none"]):
            rows[model] = row
    reported = {
        "letters": LETTERS,
        "columns": names,
        "rows": dict(sorted(rows.items())),
        "words": dict(sorted(words.items())),
    }
    path.write_text(json.dumps(reported, indent=1) + "\n")


def worse(outcomes: Outcomes, before: Outcomes) -> list[Cell]:
    """Returns the cells that were right before and no longer are."""
    return [
        cell
        for cell, outcome in outcomes.items()
        if outcome["outcome"] in OUTCOMES[2:] and before.get(cell, {}).get("outcome") in OUTCOMES[:2]
    ]
