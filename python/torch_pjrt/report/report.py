"""``torch_pjrt.explain()``: what was run, why it was cut there, and what was compiled anew and why.

The entries come from the core's run log, and from whoever calls ``tell()``.
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
# What programs on the CPU call (src/kernels/cpu).
_KERNELS = {"torch_pjrt.aten": "PyTorch's kernel", "torch_pjrt.product": "PyTorch's libraries (oneDNN, MKL)"}


class Report:
    """What happened while it was open. ``print(report)`` shows it as tables."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    @property
    def entries(self) -> list[Entry]:
        """Everything, in the order in which it happened."""
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
        return of_kind(self.entries, GraphBreak)

    @property
    def recompiles(self) -> list[Recompile]:
        return of_kind(self.entries, Recompile)

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)

    def __str__(self) -> str:
        from rich.console import Console

        # As wide as the terminal, but wide enough for a line of code where there is none.
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
    """Tells what runs in the block, in every thread: ``with torch_pjrt.explain() as report: ...; print(report)``.

    Of each run of a graph: why the graph was cut there, at which line of the user's, its size, whether its program was
    compiled, loaded from disk or in memory, and what a new one has otherwise than the graph that it resembles most. Of
    each call on the host: which, where, and why. What is still pending at the end of the block did not run in it:
    ``torch_pjrt.sync()`` runs it.

    The report is a ``torch_pjrt.report.Report``. It may be read in the block, too. Outside of such blocks nothing is
    taken down.
    """

    def __enter__(self) -> Report:
        _collect()  # what came before is for those that were open before
        self.report = Report()
        _C.start_log()
        _active.append(self.report)
        return self.report

    def __exit__(self, *exception: object) -> None:
        _collect()
        _active.remove(self.report)
        _C.stop_log()


def is_active() -> bool:
    """Whether anybody would read what ``tell()`` is given."""
    return bool(_active)


def tell(entry: Entry) -> None:
    """Adds the entry to every open report."""
    for report in _active:
        report.add(entry)


def _collect() -> None:
    for raw in _C.take_log() if _active else ():
        tell(_run(raw) if "graph" in raw else HostFallback(**raw))


def _run(raw: dict[str, Any]) -> GraphRun:
    description, other = raw.pop("description", None), raw.pop("resembles", None)
    from_disk = raw.pop("from_disk", None)
    for of_bench in ("predicted", "cpu_seconds", "compile_cpu_seconds"):  # bench/tiers/costs.py
        raw.pop(of_bench, None)
    source = "memory" if from_disk is None else "disk" if from_disk else "compiled"
    if raw["by_calls"]:
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
