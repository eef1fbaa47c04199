"""The user's names of arguments and results of AOTAutograd's graphs."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from typing import Any

from torch import fx

from torch_pjrt.traces.recorder import Path, Recorder

# An argument or result that is (a part of) one value: its description, its name, and each node's path in it.
Group = tuple[Any, str, list[tuple[Path, fx.Node]]]


def snake_case(name: str) -> str:
    """Converts a name: ``"DeviceMesh"`` → ``"device_mesh"``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def identifiers(names: Sequence[str]) -> list[str]:
    """Makes distinct identifiers: ``"self._modules['0']._parameters['weight']"`` → ``"0_weight"`` → ``"_0_weight"``."""
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
    """Returns the argument or result that a part of a subclass belongs to, and the part's path in it."""
    path: list[str] = []
    while type(description).__name__ in ("SubclassGetAttrAOTInput", "SubclassGetAttrAOTOutput"):
        path.append(description.attr)
        description = description.base
    return description, tuple(reversed(path))


SIZES = {"SubclassSizeAOTInput": "size", "SubclassStrideAOTInput": "stride"}


def is_size(description: Any) -> bool:
    """Whether it is a size or stride with which a subclass is built, in addition to its parts."""
    return type(description).__name__ in ("SubclassSizeAOTOutput", "SubclassStrideAOTOutput")


Parts = list[tuple[Any, list[tuple[Path, Any]]]]  # descriptions of results, each with paths and values of its parts


def add_part(found: Parts, description: Any, value: Any) -> None:
    """Adds a result's value: a new result, or a further part of the subclass to which the last value belongs."""
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
    """The names of one captured graph."""

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
    """Returns the arguments, with the parts of one subclass grouped. With ``only_tangents``, other arguments of a
    backward are values that the forward saved."""
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
    """Returns the final names of values that the recorder took for arguments; some turn out to be made of arguments."""
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
