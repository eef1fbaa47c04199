"""Reports to ``torch_pjrt.explain()`` why a function is compiled again: which input differs, and how."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from torch_pjrt import report
from torch_pjrt.program.stack import frames_of
from torch_pjrt.program.subclasses import Form, differences, form_of

LOCAL = re.compile(r"\bL\['(\w+)'\]")


def input_names(module: fx.GraphModule) -> list[str]:
    """Returns the user's names of the inputs of a graph that Dynamo captured: ``"x"``, ``"self._parameters['w']"``."""
    names = []
    for node in module.graph.find_nodes(op="placeholder"):
        argument = node.meta.get("grapharg")
        names.append(LOCAL.sub(r"\1", argument.source.name) if argument is not None and argument.source else node.name)
    return names


def argument_names(graph: fx.Graph, inputs: Sequence[str]) -> list[str]:
    """Returns for each argument of a graph that AOTAutograd made the name of its input, or its own name."""
    names = []
    for node in graph.find_nodes(op="placeholder"):
        index = getattr(node.meta.get("desc"), "idx", None)
        names.append(inputs[index] if isinstance(index, int) and index < len(inputs) else node.name)
    return names


def _function(graph: fx.Graph) -> dict[str, Any]:
    """Returns name, file and line of the function that was compiled: the outermost of the user's frames."""
    for node in graph.nodes:
        if frames := frames_of(node.meta.get("stack_trace")):
            return {"function": frames[0].function, "file": frames[0].file, "line": frames[0].line}
    return {"function": "(unknown)"}


# For each function, the forms of the subclasses among its arguments when it was last compiled.
_forms: dict[tuple[Any, ...], dict[str, Form | None]] = {}
MOST_FUNCTIONS = 256


def _changed_forms(module: fx.GraphModule, example_inputs: Sequence[Any]) -> str:
    """Returns how the subclasses differ from the last compile's: ``"x: context 'm' → 'kg'"``, or "" if they don't."""
    now = {
        name: form_of(value, sizes=False) if isinstance(value, torch.Tensor) else None
        for name, value in zip(input_names(module), example_inputs, strict=True)
    }
    key = tuple(_function(module.graph).values())
    before = _forms.pop(key, now)
    _forms[key] = now
    if len(_forms) > MOST_FUNCTIONS:
        del _forms[next(iter(_forms))]
    return "; ".join(
        each for name, form in now.items() if name in before for each in differences(name, before[name], form)
    )


def report_guards(module: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """Reports, called in a backend, that Dynamo recompiles because guards of an earlier compile don't hold."""
    changed = _changed_forms(module, example_inputs)
    if not report.is_active():
        return
    from torch._dynamo.utils import get_metrics_context

    reason = getattr(get_metrics_context(), "_metrics", {}).get("recompile_reason")
    if reason:
        first = changed or re.sub(r"^\d+/\d+: |\s*#.*", "", reason.split("\n")[0]).strip()
        report.record(report.Recompile(reason=first, **_function(module.graph)))


class Sizes:
    """The sizes that one graph was compiled for."""

    def __init__(self, graph: fx.Graph, names: Sequence[str]) -> None:
        self.graph = graph
        self.names = names
        self.last: list[Any] = []

    def report(self, now: list[Any]) -> None:
        """Reports that the graph is compiled for ``now``: for each argument its sizes, or its value if a number."""
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
        report.record(report.Recompile(reason="; ".join(reasons), **_function(self.graph)))
