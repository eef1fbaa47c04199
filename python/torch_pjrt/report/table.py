"""The tables of ``torch_pjrt.explain()``'s report."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from torch_pjrt.report.entries import Entry, GraphBreak, GraphRun, HostFallback, Recompile, grouped, of_kind

MOST = 6  # differences shown per graph


def tables(entries: Sequence[Entry]) -> Group:
    runs = of_kind(entries, GraphRun)
    fallbacks = of_kind(entries, HostFallback)
    made = [run for run in runs if is_new(run)]
    parts: list[RenderableType] = [summary(runs, len(fallbacks))]
    if runs:
        parts.append(graph_table(runs))
    if made:
        parts.append(new_graph_table(made))
    if any(run.composites for run in made):
        composites = ((run, one.count, one.name, one.done_by) for run in made for one in run.composites)
        parts.append(done_by_table("composites", "composite", composites))
    if any(run.kernels for run in made):
        kernels = ((run, one.count, one.op, one.kernel) for run in made for one in run.kernels)
        parts.append(done_by_table("done by libraries", "op", kernels))
    others: dict[str, list[tuple[Entry, str, str]]] = {
        "ran on the host": [(e, e.op, e.reason) for e in fallbacks],
        "graph breaks": [(e, "", e.reason) for e in of_kind(entries, GraphBreak)],
        "recompiles": [(e, e.function, e.reason) for e in of_kind(entries, Recompile)],
    }
    parts += [plain_table(title, rows) for title, rows in others.items() if rows]
    return Group(*parts)


def is_new(run: GraphRun) -> bool:
    return run.source in ("compiled", "disk")


def summary(runs: Sequence[GraphRun], fallbacks: int) -> str:
    count = {source: sum(run.source == source for run in runs) for source in ("compiled", "disk", "calls")}
    compiling = sum(run.compile_seconds for run in runs)
    return (
        f"{counted(len(runs), 'run')} of {counted(len({run.graph for run in runs}), 'graph')}; "
        f"{count['compiled']} compiled and {count['disk']} loaded from disk in {seconds(compiling)}; "
        + (f"{count['calls']} interpreted; " if count["calls"] else "")
        + f"{counted(fallbacks, 'host fallback')}"
    )


def graph_table(runs: Sequence[GraphRun]) -> Table:
    table = Table(title="runs of graphs", title_justify="left")
    copies = any(run.copied_bytes for run in runs)
    for name in ("runs", "graph", "ops", "arguments", "results", *["copied"] * copies, "program", "started in"):
        table.add_column(name, justify="right")
    table.add_column("cut by", overflow="fold")
    table.add_column("at", overflow="fold")
    for group in grouped(runs, "graph", "cause", "file", "line"):
        run = group[0]
        made = [r for r in group if is_new(r)]
        program = (
            f"{made[0].source} {seconds(made[0].compile_seconds)}" if made else group[-1].interpreted or run.source
        )
        table.add_row(
            str(len(group)),
            str(run.graph),
            str(run.nodes),
            f"{run.arguments}, {size(run.argument_bytes)}",
            f"{run.results}, {size(run.result_bytes)}",
            *[size(max(r.copied_bytes for r in group))] * copies,
            program,
            seconds(min(r.execute_seconds for r in group)),
            run.cause,
            located(run),
        )
    return table


def new_graph_table(runs: Sequence[GraphRun]) -> Table:
    table = Table(title="graphs that were new", title_justify="left")
    table.add_column("graph", justify="right")
    table.add_column("resembles", justify="right")
    table.add_column("and differs in", overflow="fold")
    for run in runs:
        lines = [escape(str(difference)) for difference in run.differences[:MOST]]
        if len(run.differences) > MOST:
            lines.append(f"and {len(run.differences) - MOST} more")
        if not lines:
            lines = ["" if run.resembles is None else "the order of its calls"]
        resembles = "none" if run.resembles is None else str(run.resembles)
        table.add_row(str(run.graph), resembles, "\n".join(lines))
    return table


def done_by_table(title: str, what: str, rows: Iterable[tuple[GraphRun, int, str, str]]) -> Table:
    """Returns a table of counts for each run, with the implementation of each."""
    table = Table(title=title, title_justify="left")
    table.add_column("graph", justify="right")
    table.add_column("times", justify="right")
    table.add_column(what, overflow="fold")
    table.add_column("done by", overflow="fold")
    for run, count, name, done_by in rows:
        table.add_row(str(run.graph), str(count), escape(name), escape(done_by))
    return table


def plain_table(title: str, rows: Sequence[tuple[Entry, str, str]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("times", justify="right")
    for name in ("what", "why", "at"):
        table.add_column(name, overflow="fold")
    counts: dict[tuple[str, str, str], int] = {}
    for entry, what, why in rows:
        key = (escape(what), escape(why), located(entry))
        counts[key] = counts.get(key, 0) + 1
    for key, count in counts.items():
        table.add_row(str(count), *key)
    return table


def located(entry: Entry) -> str:
    """Returns the place, and the source line there."""
    code = linecache.getline(entry.file, entry.line).strip() if entry.file else ""
    return escape(f"{entry.place}  {code}" if code else entry.place)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def seconds(value: float) -> str:
    for scale, unit in ((1e6, "µs"), (1e3, "ms")):
        if value * scale < 1000:
            return f"{value * scale:.3g} {unit}"
    return f"{value:.2f} s"


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"
