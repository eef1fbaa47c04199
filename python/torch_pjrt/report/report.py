"""``torch_pjrt.explain()``: the graphs that ran, why they were cut there, and which were compiled and why.

The entries come from the core's run log, and from callers of ``tell()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_pjrt import _C
from torch_pjrt.report.difference import differences
from torch_pjrt.report.entries import (
    Composite,
    Entry,
    GraphBreak,
    GraphRun,
    HostFallback,
    KernelCall,
    Recompile,
    of_kind,
)

if TYPE_CHECKING:
    from rich.console import Group

_active: list[Report] = []
# Names of the custom calls of programs on the CPU (src/kernels/cpu).
_KERNELS = {"torch_pjrt.aten": "PyTorch's kernel"}


class Report:
    """The events that happened while it was open. ``print(report)`` shows them as tables."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    @property
    def entries(self) -> list[Entry]:
        """All entries, in the order in which they happened."""
        _collect()
        return sorted(self._entries, key=lambda entry: entry.when)

    @property
    def graphs(self) -> list[GraphRun]:
        """Each run of a graph."""
        return of_kind(self.entries, GraphRun)

    @property
    def fallbacks(self) -> list[HostFallback]:
        """Each call that ran on the host."""
        return of_kind(self.entries, HostFallback)

    @property
    def breaks(self) -> list[GraphBreak]:
        """Each place where ``torch.compile`` cut a graph."""
        return of_kind(self.entries, GraphBreak)

    @property
    def recompiles(self) -> list[Recompile]:
        """Each function that ``torch.compile`` compiled again."""
        return of_kind(self.entries, Recompile)

    def add(self, entry: Entry) -> None:
        """Adds an entry; ``tell`` calls it for every open report."""
        self._entries.append(entry)

    def __str__(self) -> str:
        from rich.console import Console

        # Without a terminal, the table is wide enough for a line of code.
        console = Console(color_system=None, highlight=False)
        if not console.is_terminal:
            console.width = 150
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    def __rich__(self) -> Group:
        from torch_pjrt.report.table import tables

        return tables(self.entries)


class explain:
    """Reports what runs in a block, in every thread: ``with torch_pjrt.explain() as report: ...; print(report)``.

    For each run of a graph it reports why the graph was cut there, the user's line, its size, whether its program was
    compiled, loaded from disk or found in memory, and how a new graph differs from the most similar known one. For each
    call on the host it reports the op, the line and the reason. Work that is still pending at the end of the block is
    not in the report; ``torch_pjrt.sync()`` in the block runs it.

    The report is a ``torch_pjrt.report.Report``, which may also be read in the block. Nothing is logged outside of such
    blocks.
    """

    def __enter__(self) -> Report:
        _collect()  # earlier events belong only to the reports that are already open
        self.report = Report()
        _C.start_log()
        _active.append(self.report)
        return self.report

    def __exit__(self, *exception: object) -> None:
        _collect()
        _active.remove(self.report)
        _C.stop_log()


def is_active() -> bool:
    """Whether a report is open, to which ``tell()`` would add."""
    return bool(_active)


def record(entry: Entry) -> None:
    """Adds the entry to every open report."""
    for report in _active:
        report.add(entry)


def _collect() -> None:
    for raw in _C.take_log() if _active else ():
        record(_run(raw) if "graph" in raw else HostFallback(**raw))


def _run(raw: dict[str, Any]) -> GraphRun:
    description, other = raw.pop("description", None), raw.pop("resembles", None)
    from_disk = raw.pop("from_disk", None)
    for of_bench in ("work", "cpu_seconds", "compile_cpu_seconds"):  # bench/tiers/costs.py
        raw.pop(of_bench, None)
    source = "memory" if from_disk is None else "disk" if from_disk else "compiled"
    if raw["interpreted"]:
        source = "calls"
    return GraphRun(
        **{"compile_seconds": 0.0, **raw},
        source=source,
        resembles=other["graph"] if other else None,
        differences=tuple(differences(other, description)) if other else (),
        composites=tuple(Composite(*one) for one in (description["composites"] if description else ())),
        kernels=tuple(
            KernelCall(op, count, _KERNELS.get(kernel, kernel))
            for op, count, kernel in (description["kernels"] if description else ())
        ),
    )
