"""What ``torch_pjrt.explain()`` tells of: one class for each kind of thing that happens."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch_pjrt.report.difference import Difference


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


@dataclass(frozen=True)
class Composite:
    """Calls in a program's text under a name (``torch_pjrt.composites``)."""

    name: str
    count: int
    done_by: str
    """Who computes it: ``"its decomposition"``, which a compiler may know better."""


@dataclass(frozen=True)
class KernelCall:
    """Calls in a program's text that a kernel of a library does, and not what XLA compiles."""

    op: str
    """``"aten::sort"``. A decomposition's calls are named, not what it is of."""
    count: int
    kernel: str
    """``"PyTorch's kernel"``, or ``"PyTorch's libraries (oneDNN, MKL)"`` of a matrix product."""


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
    """Where its program came from: ``"memory"``, ``"disk"`` or ``"compiled"``. ``"calls"``: it ran call by call, as
    it has not paid for its compile yet."""
    compile_seconds: float
    """From the recorded graph to the executable; 0 where the program was in memory."""
    execute_seconds: float
    """Until the runtime had started it, or had run it if it runs in the caller's thread."""
    by_calls: str = ""
    """Which of the runs before its program this was: ``"3 of 120 by calls"``."""
    resembles: int | None = None
    """The graph of this process that a new one has most in common with; ``None``: there is none."""
    differences: tuple[Difference, ...] = ()
    """What a new graph has otherwise than that one."""
    composites: tuple[Composite, ...] = ()
    """Of a new graph."""
    kernels: tuple[KernelCall, ...] = ()
    """Of a new graph on the CPU."""


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


def of_kind(entries: Iterable[Entry], kind: type[E]) -> list[E]:
    return [entry for entry in entries if isinstance(entry, kind)]


def grouped(entries: Iterable[E], *names: str) -> list[list[E]]:
    """Entries that agree in these fields, in the order of their first."""
    groups: dict[tuple[Any, ...], list[E]] = {}
    for entry in entries:
        groups.setdefault(tuple(getattr(entry, name) for name in names), []).append(entry)
    return list(groups.values())
