"""Results as a table on the terminal and as a picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from rich.table import Table

from measure import Result

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def in_words(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:g} {unit}"
    for scale, name in ((1e6, "µs"), (1e3, "ms")):
        if value * scale < 1000:
            return f"{value * scale:.2f} {name}"
    return f"{value:.2f} s"


def table(results: list[Result], machine: dict[str, object]) -> Table:
    shown_facts = ("cpu", "cores", "torch", "plugin", "commit")
    caption = " · ".join(f"{machine[f]} cores" if f == "cores" else str(machine[f]) for f in shown_facts)
    shown = Table(title="torch-pjrt, side by side", caption=caption)
    for column in ("measurement", "ours", "reference", "ratio", "target", ""):
        shown.add_column(column, justify="left" if column == "measurement" else "right")
    words = {True: "[green]pass", False: "[red]FAIL", None: "[dim]info"}
    for r in results:
        relative = r.unit in ("s", "MiB")
        shown.add_row(
            r.name,
            in_words(r.ours, r.unit),
            f"{in_words(r.reference, r.unit)} ({r.against})",
            f"{r.ratio:.2f}x" if relative else "",
            "" if r.target is None else f"≤ {r.target:g}{'x' if relative else ''}",
            words[r.passed],
        )
    return shown


def picture(results: list[Result], machine: dict[str, object], path: Path) -> None:
    timed = [r for r in results if r.unit == "s"][::-1]
    if not timed:
        return
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.45 * len(timed)), layout="constrained")
    colors = {True: "tab:green", False: "tab:red", None: "tab:gray"}
    bars = axes.barh(range(len(timed)), [r.ratio for r in timed], color=[colors[r.passed] for r in timed])
    axes.bar_label(bars, [f" {r.ratio:.2f}×" for r in timed], fontsize=8)
    for i, r in enumerate(timed):
        if r.target is not None:
            axes.plot([r.target, r.target], [i - 0.4, i + 0.4], color="black", linewidth=2)
    axes.set_yticks(range(len(timed)), [f"{r.name}\nvs {r.against}" for r in timed], fontsize=8)
    axes.set_xlabel("time, ours / reference (lower is better; black: the target)")
    axes.set_title(f"{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}", fontsize=9)
    axes.margins(x=0.12)
    figure.savefig(path, dpi=120)
