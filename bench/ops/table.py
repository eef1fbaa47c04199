"""The table of docs/ops.md, from the results in bench/out/ops.jsonl."""

from __future__ import annotations

import re

from ops.kept import LAUNCH, ROOT, SIZES, Kept, Timed, kept

DOCUMENT, START, END = ROOT / "docs/ops.md", "<!-- made by bench/ops -->\n", "<!-- end of it -->"
ABOVE = 2.0  # the least ratio in the document
DIRECTIONS = {"forward": "", "backward": ", backward"}


def share(timed: list[Timed]) -> str:
    """Returns table cells with the median, the 90th and the 99th percentile of the ratios."""
    ratios = sorted(one.ratio for one in timed)
    return " | ".join(f"{ratios[min(len(ratios) - 1, int(part * len(ratios)))]:.2f}" for part in (0.5, 0.9, 0.99))


def table(all_of: Kept | None = None) -> str:
    """Returns a table of ops that take more than ABOVE times as long as eager at the largest size, with percentiles."""
    all_of = all_of or kept()
    largest = max(SIZES)
    timed = [one for one in all_of.timed if one.works or one.size < largest]
    at_largest = [one for one in timed if one.size == largest]
    cells: dict[tuple[str, str, str], dict[tuple[str, int], float]] = {}
    for one in timed:
        cells.setdefault((one.op, one.direction, one.dtype), {})[one.way, one.size] = one.ratio
    ways = ("interpreted", "compiled")
    worst = {key: max(cell.get((way, largest), 0) for way in ways) for key, cell in cells.items()}
    measured = [key for key in cells if worst[key]]
    above = sorted((key for key in measured if worst[key] > ABOVE), key=lambda key: -worst[key])
    launched = {(one.op, one.direction, one.dtype) for one in all_of.timed if one.size == largest and not one.works}
    machine = all_of.machine
    where = f"CPU time on one core of {machine['cpu']}, {machine['isa']}, PyTorch {machine['torch']}"
    lines = [
        f"Of {len(measured)} (op, direction, dtype), {len(above)} take more than {ABOVE:g} times as long as eager's "
        f"kernels at {largest:,} elements: {where}. "
        f"{len(launched)} more do nothing that grows with the data ({LAUNCH * 1e6:g} µs at most: views and the like).",
        "",
        "| ratio | of | a half below | nine tenths | 99 of 100 |",
        "| --- | --- | --- | --- | --- |",
    ]
    for way in ways:
        for direction in DIRECTIONS:
            for dtype in sorted({one.dtype for one in at_largest}):
                some = [one for one in at_largest if (one.way, one.direction, one.dtype) == (way, direction, dtype)]
                if some:
                    lines.append(f"| {direction}, {way}, {dtype} | {len(some)} | {share(some)} |")
    if above:
        sizes = sorted({one.size for one in timed})
        lines += [
            "",
            "| op | dtype | " + " | ".join(f"{way}, {size:,}" for way in ways for size in sizes) + " |",
            "| --- " * (2 + len(ways) * len(sizes)) + "|",
        ]
    for key in above:
        op, direction, dtype = key
        ratios = [cells[key].get((way, size)) for way in ways for size in sizes]
        shown = " | ".join("–" if ratio is None else f"{ratio:.1f}" for ratio in ratios)
        lines.append(f"| {op}{DIRECTIONS[direction]} | {dtype} | {shown} |")
    why: dict[str, list[str]] = {}
    for unit, reason in all_of.left_out.items():
        if unit.size == largest:
            why.setdefault(reason, []).append(f"`{unit.op}` ({unit.dtype})")
    lines += ["", "Not measured at this size:", ""]
    for reason, units in sorted(why.items(), key=lambda item: -len(item[1])):
        some = f", {', '.join(units)}" if len(units) < 9 else ""
        lines.append(f"- {reason.replace('|', '/')}: {len(units)}{some}")
    return "\n".join(lines) + "\n"


ROW = re.compile(r"\| (?P<op>\S+?)(?P<backward>, backward)? \| (?P<dtype>\w+) \| \S+ \| \S+ \|")
COUNT = re.compile(r"(Of \d+ \(op, direction, dtype\), )\d+( take more)")
Key = tuple[str, str, str]


def renewed(made: str, all_of: Kept | None = None) -> str:
    """Returns an older table with new rows for the stored results; percentiles of all ops are unchanged."""
    all_of = all_of or kept()
    ratios: dict[Key, dict[str, float]] = {}
    for one in all_of.timed:
        if one.size == max(SIZES) and one.works:
            ratios.setdefault((one.op, one.direction, one.dtype), {})[one.way] = one.ratio
    rows: dict[Key, str] = {}
    for line in made.splitlines():
        if row := ROW.fullmatch(line):
            rows[row["op"], "backward" if row["backward"] else "forward", row["dtype"]] = line
    first = next(line for line in made.splitlines() if line in rows.values())
    before, rest = made.split(first, 1)
    after = "\n\nNot measured" + rest.partition("\n\nNot measured")[2]
    for key, ways in ratios.items():
        rows.pop(key, None)
        if max(ways.values()) > ABOVE:
            shown = " | ".join(f"{ways[way]:.1f}" if way in ways else "–" for way in ("interpreted", "compiled"))
            rows[key] = f"| {key[0]}{DIRECTIONS[key[1]]} | {key[2]} | {shown} |"
    worst = {key: max(float(cell) for cell in re.findall(r"\| (\d+\.\d) ", line)) for key, line in rows.items()}
    in_order = [rows[key] for key in sorted(rows, key=lambda key: -worst[key])]
    return COUNT.sub(rf"\g<1>{len(rows)}\g<2>", before) + "\n".join(in_order) + after


def write_document(rows_alone: bool = False) -> None:
    """Writes the document; with `rows_alone` only rows of stored results, if these are a part of all ops."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(START)
    made, _, after = rest.partition(END)
    new = renewed(made) if rows_alone else "\n" + table() + "\n"
    DOCUMENT.write_text(before + START + new + END + after)
