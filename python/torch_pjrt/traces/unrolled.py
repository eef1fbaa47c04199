"""Writes the graphs that are compiled, each line with the call of a subclass that it comes from."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from torch_pjrt.program.subclasses import is_subclass, parts_of
from torch_pjrt.traces.events import LINE, REGENERATED, Event, Ref, frames_of
from torch_pjrt.traces.naming import Names, Parts, Path, add_part, arguments_of, base_of, is_size
from torch_pjrt.traces.recorder import INDEX, Recorder
from torch_pjrt.traces.source import Source, header
from torch_pjrt.traces.subclassed import Subclassed, tuple_of
from torch_pjrt.traces.types import type_of


class Accounts:
    """Counts what became of the lines to which each call was unrolled."""

    def __init__(self, joint: fx.Graph, recorder: Recorder) -> None:
        self.recorded: dict[Event, int] = {}
        self.alive: dict[Event, set[int]] = {}
        self.shown: dict[str, dict[Event, set[int]]] = {}
        for event in self._all(recorder.events):
            self.recorded[event] = len(event.nodes)
        for node in self._reaching(joint):
            if frames := frames_of(node):
                self.alive.setdefault(frames[-1], set()).add(node.meta[INDEX])
                self.recorded.setdefault(frames[-1], len(frames[-1].nodes))

    @staticmethod
    def _all(events: Sequence[Event]) -> list[Event]:
        return [event for event in events if event.handler]

    @staticmethod
    def _reaching(graph: fx.Graph) -> list[fx.Node]:
        needed = {graph.output_node()}
        for node in reversed(graph.nodes):
            schema = getattr(node.target, "_schema", None)
            if node in needed or (schema is not None and schema.is_mutable):
                needed.add(node)
                needed.update(node.all_input_nodes)
        return [node for node in graph.nodes if node in needed and node.op == "call_function"]

    def show(self, name: str, graph: fx.Graph) -> None:
        shown = self.shown.setdefault(name, {})
        for node in graph.nodes:
            if node.op == "call_function" and (frames := frames_of(node)):
                shown.setdefault(frames[-1], set()).add(node.meta[INDEX])

    def of(self, event: Event) -> dict[str, int]:
        """Counts the call's lines that are shown in its own pass, moved to the other, merged, and dead."""
        home = "backward" if event.backward else "forward"
        everywhere = [lines.get(event, set()) for lines in self.shown.values()]
        here = self.shown.get(home, {}).get(event, set())
        shown = set().union(*everywhere)
        alive = self.alive.get(event, set()) | shown
        return {
            "shown": len(here),
            "moved": len(shown - here),
            "merged": len(alive - shown),
            "dead": self.recorded.get(event, 0) - len(alive),
        }


def objects_of(recorder: Recorder, joint: fx.Graph) -> dict[Any, Any]:
    """Returns for each result that is a subclass the traced object."""
    output = joint.output_node()
    nodes = pytree.tree_leaves(output.args[0], is_leaf=lambda x: x is None or isinstance(x, fx.Node))
    found: dict[Any, Any] = {}
    inputs = {node.name: name for nodes_, (name, _) in recorder.inputs.items() for node in nodes_}
    for node, description in zip(nodes, output.meta["desc"], strict=True):
        base, path = base_of(description)
        if not path or not isinstance(node, fx.Node) or base in found:
            continue
        owner = recorder.part[node][0] if node in recorder.part else inputs.get(node.name, "")
        if owner in recorder.objects:
            found[base] = recorder.objects[owner]
    return found


def put_together(like: Any, parts: list[tuple[Path, str]], body: Source) -> str:
    """Returns the text: ``TwoTensor.__tensor_unflatten__({"a": t0, "b": t1}, None, (3, 4), (4, 1))``."""
    attributes, context = parts_of(like)
    written = []
    for name, value in attributes.items():
        mine = [(path[1:], text) for path, text in parts if path[:1] == (name,)]
        written.append(f"{name!r}: " + (put_together(value, mine, body) if is_subclass(value) else mine[0][1]))
    cls = body.name_object(type(like), type(like).__name__)
    size, stride = (body.value(tuple(each)) for each in (like.shape, like.stride()))
    return f"{cls}.__tensor_unflatten__({{{', '.join(written)}}}, {body.context(context)}, {size}, {stride})"


def write_frame(
    body: Source,
    frames: Sequence[Event],
    name_of: Callable[[str], str],
    code: str,
    counted: tuple[int, int, int],
    became: dict[str, int],
    notes: Sequence[str] = (),
) -> None:
    """Writes the nested calls of subclasses from which the next line comes.

    Args:
        code: the line of the subclass.
        counted: the number of the line, how many of the call's lines are shown here, and how many there were.
        became: the counts of what became of all of them.
    """
    event = frames[-1]
    seen, total, recorded = counted
    verb = "claimed by" if event.claimed is not None else "unrolled __torch_dispatch__ of"
    body.comment(f"[{seen}/{total}] {verb} {event.describe(name_of)}{', ' if code else ''}{code}")
    for up in reversed(frames[:-1]):
        body.comment(f"within that of {up.describe(name_of)}", 2)
    for note in notes:
        body.comment(note, 2)
    if seen == total and total < recorded:
        rest = [f"{n} {what}" for what, n in became.items() if what != "shown" and n]
        body.comment(f"({total} of {recorded} shown{': ' if rest else ''}{', '.join(rest)})", 2)


def write_absent(body: Source, absent: Sequence[tuple[Event, int, dict[str, int]]], name_of: Any) -> None:
    """Writes the calls without a line here: how many lines they had, and what became of them."""
    if absent:
        body.lines += ["", "# No line here is of these:"]
    for event, recorded, became in absent:
        rest = ", ".join(f"{n} {what}" for what, n in became.items() if n)
        body.comment(f"{event.describe(name_of)} (0 of {recorded} shown: {rest})", 2)


class Unrolled:
    """A graph that is compiled; only its arguments and results are subclasses, which are flattened and rebuilt."""

    def __init__(
        self, graph: fx.Graph, names: Names, outer: Subclassed, accounts: Accounts, objects: dict[Any, Any]
    ) -> None:
        self.graph, self.names, self.outer, self.accounts, self.objects = graph, names, outer, accounts, objects
        self.rename: dict[fx.Node, str] = {}

    def named(self, x: Any) -> Any:
        return fx.map_arg(x, lambda node: Ref(self.rename[node]))

    def free(self, name: str, used: set[str]) -> str:
        while name in used:
            name += "_"
        used.add(name)
        return name

    def write_arguments(self, body: Source, is_backward: bool) -> tuple[list[str], set[str]]:
        groups = arguments_of(self.graph, self.names, is_backward)
        used = {name for _, name, _ in groups}
        for _, name, parts in groups:
            value = parts[0][1].meta.get("val")
            text = self.outer.types.get(name, "")
            if parts[0][0] == () and isinstance(value, torch.Tensor):
                text = type_of(value)
            if text:
                body.comment(f'{name}: "{text}"')
            if parts[0][0] == ():
                self.rename[parts[0][1]] = name
        for _, name, parts in groups:
            if parts[0][0] == ():
                continue
            for path, node in parts:
                self.rename[node] = self.free("_".join([name, *(part.strip("_") for part in path)]), used)
            left = ", ".join(self.rename[node] for _, node in parts)
            right = ", ".join(".".join((name, *path)) for path, _ in parts)
            if len(left) + len(right) + 3 <= body.room:
                body.line(f"{left} = {right}")
            else:
                body.lines += [f"{self.rename[node]} = {'.'.join((name, *path))}" for path, node in parts]
        for node in self.graph.nodes:
            if node not in self.rename:
                self.rename[node] = self.free(node.name, used)
        return [name for _, name, _ in groups], used

    def write_frames(self, node: fx.Node, frames: list[Event], seen: dict[Event, int], body: Source, home: str) -> None:
        event = frames[-1]
        seen[event] = seen.get(event, 0) + 1
        total = len(self.accounts.shown[home].get(event, ()))
        moved = event.backward and home == "forward"
        recorded = self.accounts.recorded.get(event, 0)
        write_frame(
            body, frames, self.outer.name, node.meta.get(LINE, ""), (seen[event], total, recorded),
            self.accounts.of(event), ["moved here from the backward"] if moved else [],
        )  # fmt: skip

    def write(self, name: str, source: Source, has_backward: bool = False) -> None:
        body = Source(source)
        parameters, used = self.write_arguments(body, name == "backward")
        seen: dict[Event, int] = {}
        module = self.graph.owning_module
        for node in self.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if node.op == "get_attr":
                value = operator.attrgetter(node.target)(module)
                have = body.name_object(value, self.rename[node])
                if have != self.rename[node]:
                    body.lines.append(f"{self.rename[node]} = {have}")
                if isinstance(value, fx.GraphModule):
                    body.lines += ["# " + line for line in value.code.strip().split("\n")]
                continue
            body.at(node.meta.get("stack_trace"))
            if frames := frames_of(node):
                self.write_frames(node, frames, seen, body, name)
            elif node.meta.get(REGENERATED):
                body.comment("again, because what it is a view of was written")
            value = node.meta.get("val")
            text = body.call(body.target(node.target), self.named(node.args), self.named(node.kwargs))
            types = [(self.rename[node], type_of(value))] if isinstance(value, torch.Tensor) else []
            body.line(f"{self.rename[node]} = {text}", types)
        here = [
            (event, recorded, self.accounts.of(event))
            for event, recorded in self.accounts.recorded.items()
            if recorded and event.backward == (name == "backward")
        ]
        write_absent(body, [each for each in here if not each[2]["shown"]], self.outer.name)
        self.write_results(body, used, has_backward)
        lines = (f"    {line}" if line else "" for line in body.lines)
        source.lines = [*header(name, parameters), *lines]

    def write_results(self, body: Source, used: set[str], has_backward: bool) -> None:
        output = self.graph.output_node()
        results: Parts = []
        saved: dict[type, list[str]] = {torch.SymInt: [], torch.Tensor: [], object: []}  # in the backward's order
        for node, description in zip(output.args[0], output.meta["desc"], strict=True):
            if description is None or is_size(description):
                continue
            text = body.value(self.named(node))
            if type(description).__name__.startswith("SavedForBackwards"):
                value = node.meta.get("val") if isinstance(node, fx.Node) else None
                next(texts for kind, texts in saved.items() if isinstance(value, kind)).append(text)
            else:
                add_part(results, description, text)
        body.lines.append("")
        values = []
        for base, parts in results:
            like = self.objects.get(base)
            if parts[0][0] == () or like is None:
                values += [text for _, text in parts]
                continue
            name = self.free(self.names.result(base), used)
            body.line(f"{name} = {put_together(like, parts, body)}", [(name, type_of(like))])
            values.append(name)
        body.line(
            f"return {tuple_of(values)}, {tuple_of([text for texts in saved.values() for text in texts])}"
            if has_backward
            else f"return {tuple_of(values)}"
        )
