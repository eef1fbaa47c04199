"""The entries of ``torch_pjrt.explain()``'s report: one class for each kind of event."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch_pjrt.report.difference import Difference


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An event, with its time in seconds of ``time.monotonic()`` and the user's line.

    ``file`` is ``""`` and ``line`` 0 if no Python code was running, as in backward.
    """

    file: str = ""
    line: int = 0
    when: float = field(default_factory=time.monotonic)

    @property
    def place(self) -> str:
        """The file and the line: ``"train.py:41"``."""
        return f"{os.path.basename(self.file)}:{self.line}" if self.file else "(no Python line)"


@dataclass(frozen=True)
class Composite:
    """Calls of a composite in a program's text (``torch_pjrt.composites``)."""

    name: str
    count: int
    done_by: str
    """The kernel that computes it, or ``"its decomposition"``, which a compiler may replace."""


@dataclass(frozen=True)
class KernelCall:
    """Calls in a program's text that a library's kernel computes, instead of code that XLA compiles."""

    op: str
    """The op, such as ``"aten::sort"``. The calls of a decomposition are named, instead of the decomposed op."""
    count: int
    kernel: str
    """``"PyTorch's kernel"``, or the name of a handler."""


@dataclass(frozen=True, kw_only=True)
class GraphRun(Entry):
    """One run of a graph: pending work, or a call of a compiled function."""

    graph: int
    """The graph's number in this process, equal in every run."""
    cause: str
    """The reason why it ran then: ``"read of an element"`` (``item()``, ``if``), ``"copy to the host"``, …"""
    nodes: int
    """The number of ATen calls in it."""
    arguments: int
    results: int
    argument_bytes: int
    result_bytes: int
    copied_bytes: int
    """Bytes of a compiled function's arguments and results on the CPU that this call copied between host and device,
    because the device has its own memory, or an argument's memory is not aligned to 64 bytes."""
    source: str
    """The source of its program: ``"memory"``, ``"disk"`` or ``"compiled"``; or ``"calls"``: the graph was interpreted,
    because its compile would not have been amortized yet."""
    compile_seconds: float
    """The time from the recorded graph to the executable; 0 if the program was in memory."""
    execute_seconds: float
    """The time until the runtime had started it; or had run it, if it runs in the caller's thread."""
    interpreted: str = ""
    """The number of this run among the interpreted ones before the compile: ``"3 of 120 interpreted"``."""
    resembles: int | None = None
    """The graph of this process that is most similar to a new one; ``None`` if there is none."""
    differences: tuple[Difference, ...] = ()
    """The differences of a new graph from that one."""
    composites: tuple[Composite, ...] = ()
    """The composites of a new graph."""
    kernels: tuple[KernelCall, ...] = ()
    """The kernels of a new graph on the CPU."""


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
    """A function that ``torch.compile`` compiled again: for other sizes, or because an assumption of Dynamo's no longer
    holds."""

    function: str
    reason: str
    """``"x: size 3 → 5 in dimension 0"``, or Dynamo's description of the guard that no longer holds."""


E = TypeVar("E", bound=Entry)


def of_kind(entries: Iterable[Entry], kind: type[E]) -> list[E]:
    return [entry for entry in entries if isinstance(entry, kind)]


def grouped(entries: Iterable[E], *names: str) -> list[list[E]]:
    """Returns groups of entries with equal values of these fields, in the order of their first entries."""
    groups: dict[tuple[Any, ...], list[E]] = {}
    for entry in entries:
        groups.setdefault(tuple(getattr(entry, name) for name in names), []).append(entry)
    return list(groups.values())
