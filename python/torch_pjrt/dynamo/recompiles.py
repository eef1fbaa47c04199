"""What ``torch_pjrt.explain()`` tells of a function that is compiled once more: which input differs, and how."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torch import fx

from torch_pjrt import report

FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
LOCAL = re.compile(r"\bL\['(\w+)'\]")


def input_names(module: fx.GraphModule) -> list[str]:
    """What the user calls each input of a graph that Dynamo captured: ``"x"``, ``"self._parameters['w']"``."""
    names = []
    for node in module.graph.find_nodes(op="placeholder"):
        argument = node.meta.get("grapharg")
        names.append(LOCAL.sub(r"\1", argument.source.name) if argument is not None and argument.source else node.name)
    return names


def argument_names(graph: fx.Graph, inputs: Sequence[str]) -> list[str]:
    """Of each argument of a graph that AOTAutograd made: the input that it is, or its own name."""
    names = []
    for node in graph.find_nodes(op="placeholder"):
        index = getattr(node.meta.get("desc"), "idx", None)
        names.append(inputs[index] if isinstance(index, int) and index < len(inputs) else node.name)
    return names


def _function(graph: fx.Graph) -> dict[str, Any]:
    """Name, file and line of the function that was compiled: the outermost of the user's frames."""
    for node in graph.nodes:
        if found := FRAME.search(node.meta.get("stack_trace") or ""):
            return {"function": found["function"], "file": found["file"], "line": int(found["line"])}
    return {"function": "(unknown)"}


def tell_guards(module: fx.GraphModule) -> None:
    """In a backend: tells if Dynamo calls it because guards of an earlier compile of the function don't hold."""
    if not report.is_active():
        return
    from torch._dynamo.utils import get_metrics_context

    reason = getattr(get_metrics_context(), "_metrics", {}).get("recompile_reason")
    if reason:
        first = re.sub(r"^\d+/\d+: |\s*#.*", "", reason.split("\n")[0]).strip()
        report.tell(report.Recompile(reason=first, **_function(module.graph)))


class Sizes:
    """The sizes that one graph was compiled for."""

    def __init__(self, graph: fx.Graph, names: Sequence[str]) -> None:
        self.graph = graph
        self.names = names
        self.last: list[Any] = []

    def tell(self, now: list[Any]) -> None:
        """The graph is compiled for these now: of each argument its sizes, or the number that it is."""
        before, self.last = self.last, now
        if not before or not report.is_active():
            return
        reasons = [
            f"{name}: size {old} → {new} in dimension {dim}"
            for name, a, b in zip(self.names, before, now, strict=True)
            if isinstance(a, list) and isinstance(b, list)
            for dim, (old, new) in enumerate(zip(a, b, strict=True))
            if old != new
        ] or [f"{name}: {a} → {b}" for name, a, b in zip(self.names, before, now, strict=True) if a != b]
        report.tell(report.Recompile(reason="; ".join(reasons), **_function(self.graph)))
