"""``torch_pjrt.explain()``: what was run, why it was cut there, and what was compiled anew and why.

The entries come from the core's run log, and from whoever calls ``tell()``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from torch_pjrt import _C
from torch_pjrt.difference import Difference, differences

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Something that happened: when, in seconds of ``time.monotonic()``, and at which line of the user's.

    ``file`` is ``""`` and ``line`` 0 where no Python code was running, as in backward.
    """

    file: str = ""
    line: int = 0
    when: float = field(default_factory=time.monotonic)

    @property
    def place(self) -> str:
        """``"train.py:41"``."""
        return f"{os.path.basename(self.file)}:{self.line}" if self.file else "(no Python line)"


@dataclass(frozen=True, kw_only=True)
class GraphRun(Entry):
    """One run of a graph: what was pending, or a call of a compiled function."""

    graph: int
    """The graph's number in this process, the same in every run."""
    cause: str
    """Why it ran there: ``"read of an element"`` (``item()``, ``if``), ``"copy to the host"``, …"""
    nodes: int
    """ATen calls in it."""
    arguments: int
    results: int
    argument_bytes: int
    result_bytes: int
    copied_bytes: int
    """Of a compiled function's arguments and results on the CPU: copied between host and device in this call, because
    the device has a memory of its own, or an argument's memory is not aligned to 64 bytes."""
    source: str
    """Where its program came from: ``"memory"``, ``"disk"`` or ``"compiled"``. ``"host"``: a small graph of integers,
    which PyTorch's own kernels ran."""
    compile_seconds: float
    """From the recorded graph to the executable; 0 where the program was in memory."""
    execute_seconds: float
    """Until the runtime had started it, or had run it if it runs in the caller's thread."""
    resembles: int | None = None
    """The graph of this process that a new one has most in common with; ``None``: there is none."""
    differences: tuple[Difference, ...] = ()
    """What a new graph has otherwise than that one."""


@dataclass(frozen=True, kw_only=True)
class HostFallback(Entry):
    """A call that ran on the host."""

    op: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class GraphBreak(Entry):
    """A place where ``torch.compile`` cut a function."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Recompile(Entry):
    """A function that ``torch.compile`` compiled once more: for other sizes, or because what Dynamo took for granted
    changed."""

    function: str
    reason: str
    """``"x: size 3 → 5 in dimension 0"``, or Dynamo's words for the guard that doesn't hold any more."""


E = TypeVar("E", bound=Entry)
_active: list[Report] = []


class Report:
    """What happened while it was open. ``print(report)`` shows it as tables."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    @property
    def entries(self) -> list[Entry]:
        """Everything, in the order in which it happened."""
        _collect()
        return sorted(self._entries, key=lambda entry: entry.when)

    def _of(self, kind: type[E]) -> list[E]:
        return [entry for entry in self.entries if isinstance(entry, kind)]

    @property
    def graphs(self) -> list[GraphRun]:
        """Each run of a graph."""
        return self._of(GraphRun)

    @property
    def fallbacks(self) -> list[HostFallback]:
        """Each call that ran on the host."""
        return self._of(HostFallback)

    @property
    def breaks(self) -> list[GraphBreak]:
        return self._of(GraphBreak)

    @property
    def recompiles(self) -> list[Recompile]:
        return self._of(Recompile)

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
        from torch_pjrt.report_table import tables

        return tables(self)


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
    outline, other = raw.pop("outline", None), raw.pop("resembles", None)
    from_disk = raw.pop("from_disk", None)
    source = "memory" if from_disk is None else "disk" if from_disk else "compiled"
    if raw.pop("on_host"):
        source = "host"
    return GraphRun(
        **{"compile_seconds": 0.0, **raw},
        source=source,
        resembles=other["graph"] if other else None,
        differences=tuple(differences(other, outline)) if other else (),
    )


def grouped(entries: Iterable[E], *names: str) -> list[list[E]]:
    """Entries that agree in these fields, in the order of their first."""
    groups: dict[tuple[Any, ...], list[E]] = {}
    for entry in entries:
        groups.setdefault(tuple(getattr(entry, name) for name in names), []).append(entry)
    return list(groups.values())
