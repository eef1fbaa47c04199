"""Runs the measurements (all, or those named), and shows them as a table, a JSON and a PNG in bench/out.

Each measurement is a file beside this one with a function measure() that returns its Results.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # models/
# What is timed and counted does not depend on earlier runs.
os.environ["TORCH_PJRT_CACHE"] = "0"
# Programs are measured, not the calls that are run until they are compiled; first_minute has those.
os.environ.setdefault("TORCH_PJRT_COMPILE", "first")

import matplotlib  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from machine import facts  # noqa: E402
from measure import Result  # noqa: E402

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

MEASUREMENTS = ["record", "known_graph", "mlp", "varying", "networks"]
NAMED_ONLY = [
    "large_networks",
    "memory",
    "compile",
    "compile_models",
    "composites",
    "convolution",
    "decode",
    "generate",
    "jax",
    "first_minute",
    "costs",
]  # they take minutes
OUT = ROOT / "bench" / "out"


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


def main() -> int:
    names = sys.argv[1:] or MEASUREMENTS
    if unknown := [n for n in names if n not in MEASUREMENTS + NAMED_ONLY]:
        print(f"bench: no measurement {', '.join(unknown)}; there are {', '.join(MEASUREMENTS + NAMED_ONLY)}")
        return 2
    console = Console()
    console.width = max(console.width, 110)
    machine = facts()
    results: list[Result] = []
    broken = []
    for name in names:
        console.print(f"[bold]{name}[/] …")
        try:
            module = {"jax": "jax_doors"}.get(name, name)  # a file beside this would hide the library
            results += importlib.import_module(module).measure()
        except Exception:
            traceback.print_exc()
            broken.append(name)
    console.print(table(results, machine))
    OUT.mkdir(exist_ok=True)
    stem = "-".join(names) if sys.argv[1:] else "bench"
    rows = [{**dataclasses.asdict(r), "passed": r.passed} for r in results]
    (OUT / f"{stem}.json").write_text(json.dumps({"machine": machine, "broken": broken, "results": rows}, indent=2))
    picture(results, machine, OUT / f"{stem}.png")
    console.print(f"wrote bench/out/{stem}.json and .png")
    if broken:
        console.print(f"[red]broke: {', '.join(broken)}")
    return 1 if broken or any(r.passed is False for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
