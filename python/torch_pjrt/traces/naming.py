"""What arguments and results of AOTAutograd's graphs are to the user."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from typing import Any

from torch import fx

from torch_pjrt.traces.recorder import Path, Recorder

# Of an argument or a result that is (a part of) one value: what it is, its name, and where each node is in it.
Group = tuple[Any, str, list[tuple[Path, fx.Node]]]


def snake_case(name: str) -> str:
    """``"DeviceMesh"`` → ``"device_mesh"``"""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def identifiers(names: Sequence[str]) -> list[str]:
    """``"self._modules['0']._parameters['weight']"`` → ``"0_weight"`` → ``"_0_weight"``; no two are the same."""
    ordered: list[str] = []
    taken: set[str] = set()
    for name in names:
        short = re.sub(r"_(parameters|modules|buffers)\b", "", name).removeprefix("self.").removeprefix("fn.")
        short = re.sub(r"\W+", "_", short).strip("_") or "value"
        short = f"_{short}" if short[0].isdigit() else f"{short}_" if keyword.iskeyword(short) else short
        while short in taken:
            short += "_"
        taken.add(short)
        ordered.append(short)
    return ordered


def base_of(description: Any) -> tuple[Any, Path]:
    """Of a part of a subclass: which argument or result, and where in it."""
    path: list[str] = []
    while type(description).__name__ in ("SubclassGetAttrAOTInput", "SubclassGetAttrAOTOutput"):
        path.append(description.attr)
        description = description.base
    return description, tuple(reversed(path))


SIZES = {"SubclassSizeAOTInput": "size", "SubclassStrideAOTInput": "stride"}


def is_size(description: Any) -> bool:
    """A symbol that a subclass is put together with, beside its parts."""
    return type(description).__name__ in ("SubclassSizeAOTOutput", "SubclassStrideAOTOutput")


Parts = list[tuple[Any, list[tuple[Path, Any]]]]  # what results are, and of each its parts: where, and the value


def add_part(found: Parts, description: Any, value: Any) -> None:
    """A result's value: of its own, or a further part of the subclass that the one before it is part of."""
    base, path = base_of(description)
    if found and path and found[-1][0] == base:
        found[-1][1].append((path, value))
    else:
        found.append((base, [(path, value)]))


def is_tangent(base: Any) -> bool:
    return type(base).__name__ == "TangentAOTInput"


def is_gradient(base: Any) -> bool:
    return type(base).__name__ == "GradAOTOutput"


class Names:
    """Of one captured graph."""

    def __init__(self, inputs: Sequence[str]) -> None:
        self.inputs = list(inputs)

    def of(self, base: Any, otherwise: str) -> str:
        kind, index = type(base).__name__, getattr(base, "idx", None)
        if kind == "PlainAOTInput" and isinstance(index, int) and index < len(self.inputs):
            return self.inputs[index]
        if kind in SIZES:
            return f"{self.of(base.base, otherwise)}_{SIZES[kind]}_{base.idx}"
        if kind == "TangentAOTInput":
            return f"grad_{self.result(base.output)}"
        return otherwise

    def result(self, base: Any) -> str:
        kind = type(base).__name__
        if kind == "PlainAOTOutput":
            return f"out_{base.idx}"
        if kind == "InputMutationAOTOutput":
            return f"new_{self.of(base.mutated_input, 'value')}"
        if kind == "GradAOTOutput":
            return f"grad_{self.of(base.grad_of, 'value')}"
        return re.sub(r"AOTOutput$", "", kind).lower() or "value"


def arguments_of(graph: fx.Graph, names: Names, only_tangents: bool = False) -> list[Group]:
    """The arguments, the parts of one subclass together. ``only_tangents``: others of a backward are what was saved."""
    groups: list[Group] = []
    used: set[str] = set()
    for node in graph.find_nodes(op="placeholder"):
        base, path = base_of(node.meta.get("desc"))
        if base is None or (only_tangents and not is_tangent(base)):
            base, path = node, ()
        if groups and path and groups[-1][0] == base:
            groups[-1][2].append((path, node))
            continue
        name = names.of(base, node.name)
        while name in used:
            name += "_"
        used.add(name)
        groups.append((base, name, [(path, node)]))
    return groups


def settled(recorder: Recorder, groups: Sequence[Group]) -> dict[str, str]:
    """What the recorder took for arguments: which they are, now that it is known. Others were made of arguments."""
    where = {node.name: (name, path) for _, name, parts in groups for path, node in parts}
    rename = {}
    for nodes, (name, paths) in recorder.inputs.items():
        found = [where.get(node.name) for node in nodes]
        if any(f is None for f in found):
            continue
        places = [f for f in found if f is not None]
        starts = {
            (owner, path[: len(path) - len(inner)])
            for (owner, path), inner in zip(places, paths, strict=True)
            if path[len(path) - len(inner) :] == tuple(inner)
        }
        if len(starts) == 1 and all(
            path[len(path) - len(inner) :] == tuple(inner) for (_, path), inner in zip(places, paths, strict=True)
        ):
            owner, prefix = starts.pop()
            rename[name] = ".".join((owner, *prefix))
    return rename
