"""Writes docs/ops.jsonl, its picture docs/ops.png, and the table of docs/ops.md from the results of a run."""

from __future__ import annotations

import json
from pathlib import Path

from ops.kept import ROOT, SIZES, WAYS, Kept, Timed, kept

DOCUMENT, START, END = ROOT / "docs/ops.md", "<!-- made by bench/ops -->\n", "<!-- end of it -->"
ROWS, PICTURE = ROOT / "docs/ops.jsonl", ROOT / "docs/ops.png"
ABOVE = 2.0  # the least ratio in the document
FACTS = ("cpu", "isa", "cores", "torch", "plugin", "commit", "time")
Key = tuple[str, str, int, str]  # op, dtype, size, direction


def ratios(all_of: Kept) -> dict[Key, dict[str, Timed]]:
    """Returns the results of each way by op, dtype, size and direction."""
    found: dict[Key, dict[str, Timed]] = {}
    for one in all_of.timed:
        found.setdefault((one.op, one.dtype, one.size, one.direction), {})[one.way] = one
    return found


def rows(all_of: Kept) -> str:
    """Returns a line of JSON with the machine and the columns, and one for each row."""
    columns = ["op", "dtype", "elements", "direction", "eager, µs", *(f"{way} / eager" for way in (*WAYS, "Inductor"))]
    lines = [json.dumps({**{fact: all_of.machine.get(fact) for fact in FACTS}, "columns": columns}, ensure_ascii=False)]
    for key, ways in sorted(ratios(all_of).items()):
        eager = next(iter(ways.values())).eager
        beside = [float(f"{ways[way].ratio:.3g}") if way in ways else None for way in (*WAYS, "Inductor")]
        lines.append(json.dumps([*key, float(f"{eager * 1e6:.3g}"), *beside]))
    return "\n".join(lines) + "\n"


def spread(some: list[float]) -> str:
    """Returns table cells: how many ratios, the median, the 90th and 99th percentile, shares up to 2 and above 4."""
    some.sort()
    parts = [f"{some[min(len(some) - 1, int(part * len(some)))]:.2f}" for part in (0.5, 0.9, 0.99)]
    shares = [sum(x <= 2 for x in some) / len(some), sum(x > 4 for x in some) / len(some)]
    return " | ".join([str(len(some)), *parts, *(f"{share:.1%}" for share in shares)])


def table(all_of: Kept) -> str:
    """Returns how the ratios are spread, and the rows above ABOVE at the largest size, of ops that do work there."""
    found, largest, machine = ratios(all_of), max(SIZES), all_of.machine
    lines = [
        f"CPU time on one core of {machine['cpu']}, {machine['isa']}, PyTorch {machine['torch']}: "
        f"{len(all_of.units)} of (op, dtype, elements), {len(found)} rows.",
        "",
        "| time over eager's | rows | a half below | nine tenths | 99 of 100 | up to 2.0 | above 4.0 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for size in SIZES:
        for way in WAYS:
            some = [ways[way] for key, ways in found.items() if key[2] == size and way in ways]
            if size == largest:
                some = [one for one in some if one.works]
            if some:
                lines.append(f"| {way}, {size:,} elements | {spread([one.ratio for one in some])} |")
    behind = [ways for ways in found.values() if "Inductor" in ways and "torch.compile" in ways]
    if behind:
        against = [ways["torch.compile"].ratio / ways["Inductor"].ratio for ways in behind]
        lines.append(f"| torch.compile over Inductor, where it is behind eager | {spread(against)} |")
    above = {
        key: {way: one.ratio for way, one in ways.items()}
        for key, ways in found.items()
        if key[2] == largest and next(iter(ways.values())).works and max(ratio(ways)) > ABOVE
    }
    if above:
        lines += ["", f"| above {ABOVE:g} at {largest:,} elements | dtype | {' | '.join((*WAYS, 'Inductor'))} |"]
        lines += ["| --- " * (3 + len(WAYS)) + "|"]
    for key in sorted(above, key=lambda key: -max(above[key].get(way, 0) for way in WAYS)):
        cells = (f"{above[key][way]:.1f}" if way in above[key] else "–" for way in (*WAYS, "Inductor"))
        direction = ", backward" * (key[3] == "backward")
        lines.append(f"| {key[0]}{direction} | {key[1]} | {' | '.join(cells)} |")
    why: dict[str, list[str]] = {}
    for unit, reason in all_of.left_out.items():
        if unit.size == largest:
            why.setdefault(reason.replace("|", "/").replace("<", "").strip(), []).append(f"`{unit.op}` ({unit.dtype})")
    lines += ["", "Not measured at this size:", ""]
    for reason, units in sorted(why.items(), key=lambda item: -len(item[1])):
        named = f", {', '.join(units)}" if len(units) < 9 else ""
        lines.append(f"- {reason}: {len(units)}{named}")
    return "\n".join(lines) + "\n"


def ratio(ways: dict[str, Timed]) -> list[float]:
    return [ways[way].ratio for way in WAYS if way in ways] or [0.0]


def picture(all_of: Kept, path: Path) -> None:
    """Draws the sorted ratios, one dot a row: a panel for each size, a color for each way."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(SIZES), figsize=(12, 4), sharey=True, layout="constrained")
    for at, size in zip(axes, SIZES, strict=True):
        for way in WAYS:
            some = sorted(one.ratio for one in all_of.timed if (one.size, one.way) == (size, way))
            at.plot([100 * i / max(1, len(some) - 1) for i in range(len(some))], some, ".", markersize=2, label=way)
        at.set_yscale("log", base=2)
        at.set_title(f"{size:,} elements", fontsize=9)
        at.set_xlabel("rows, sorted by ratio, %")
        for limit in (1, 2, 4):
            at.axhline(limit, color="black", linewidth=0.5)
    axes[0].set_ylabel("time over eager's")
    axes[0].legend(fontsize=8, markerscale=4)
    figure.suptitle(f"{all_of.machine['cpu']}, {all_of.machine['isa']}, torch {all_of.machine['torch']}", fontsize=9)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def write_document() -> None:
    all_of, text = kept(), DOCUMENT.read_text()
    before, _, rest = text.partition(START)
    DOCUMENT.write_text(f"{before}{START}\n{table(all_of)}\n{END}{rest.partition(END)[2]}")
    ROWS.write_text(rows(all_of))
    picture(all_of, PICTURE)
