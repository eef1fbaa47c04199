"""Writes the calls of forward and backward, with subclasses as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from torch_pjrt.program.subclasses import is_opaque, real_of
from torch_pjrt.traces.events import Event, Ref, refs_in, renamed, short_name
from torch_pjrt.traces.naming import (
    Names,
    Parts,
    Path,
    add_part,
    arguments_of,
    is_gradient,
    is_size,
    is_tangent,
    settled,
)
from torch_pjrt.traces.recorder import Recorder
from torch_pjrt.traces.source import Source, header
from torch_pjrt.traces.types import type_of


def tuple_of(values: Sequence[str | None]) -> str:
    return "(" + ", ".join(map(str, values)) + ("," if len(values) == 1 else "") + ")"


def left_of(out: Any) -> str:
    if isinstance(out, Ref):
        return out.name
    names = [x.name if isinstance(x, Ref) else "_" for x in out]
    return ", ".join(names) + ("," if len(names) == 1 else "")


def write_event(event: Event, body: Source, name_of: Callable[[str], str], all_types: dict[str, str]) -> None:
    """Writes one line, with the names that values have there."""
    names = [name_of(ref.name) for ref in refs_in(event.out)]
    types = [(name, all_types.get(name, "")) for name in names]
    args, kwargs = renamed((event.args, event.kwargs), name_of)
    if event.kind == "attr":
        body.line(f"{names[0]} = {args[0].name}.{'.'.join(event.target)}", types)
    elif event.kind in ("build", "input"):
        parts = "{" + ", ".join(f"{k!r}: {body.value(v)}" for k, v in args.items()) + "}"
        about = f"{body.context(kwargs['context'])}, {body.value(kwargs['size'])}, {body.value(kwargs['stride'])}"
        cls = body.name_object(event.target, event.target.__name__)
        body.line(f"{names[0]} = {cls}.__tensor_unflatten__({parts}, {about})", types)
    else:
        if event.claimed is not None:
            body.comment(f"{short_name(event.claimed)} is claimed by {event.handler}")
        text = body.call(body.target(event.target), args, kwargs)
        operands = {ref.name for ref in refs_in((args, kwargs))}
        if not names or set(names) <= operands:
            body.line(text)
            return
        to = left_of(renamed(event.out, name_of))
        body.line(f"{to} = {text}", [(name, text) for name, text in types if name not in operands])


class Subclassed:
    """A joint or inference graph, as the recorder saw it made."""

    def __init__(self, recorder: Recorder, joint: fx.Graph, names: Names) -> None:
        self.recorder, self.names = recorder, names
        self.arguments = arguments_of(joint, names)
        self.settled = settled(recorder, self.arguments)
        self.taken = {name for _, name, _ in self.arguments}
        self.types = {self.name(name): text for name, text in recorder.types.items()}
        for _, name, parts in self.arguments:
            value = parts[0][1].meta.get("val")
            if parts[0][0] == () and (isinstance(value, torch.Tensor) or is_opaque(value)):
                self.types.setdefault(name, type_of(value))
        self.name_opaque_inputs()
        self.results = self.results_of(joint)
        self.live = self.live_events()

    def name_opaque_inputs(self) -> None:
        """Names opaque objects among the inputs and in their parts, which calls refer to."""
        found: dict[int, Ref] = {}
        for _, name, parts in sorted(self.arguments, key=lambda group: len(group[2][0][0])):
            for path, node in parts:
                value = node.meta.get("val")
                if is_opaque(value) and id(real_of(value)) not in found:
                    found[id(real_of(value))] = ref = Ref(f"opaque {node.name}")
                    self.settled[ref.name] = ".".join((name, *path))

        def named(x: Any) -> Any:
            return found.get(id(real_of(x)), x) if is_opaque(x) else x

        for event in self.recorder.events:
            event.args, event.kwargs = pytree.tree_map(
                named, (event.args, event.kwargs), is_leaf=lambda x: isinstance(x, Ref)
            )

    def name(self, name: str) -> str:
        head, _, rest = name.partition(".")
        if head in self.settled:
            head = self.settled[head]
        elif head in self.taken:
            head += "_"
        return f"{head}.{rest}" if rest else head

    def results_of(self, joint: fx.Graph) -> list[tuple[Any, str | None]]:
        """Returns each result's description and value."""
        output = joint.output_node()
        nodes = pytree.tree_leaves(output.args[0], is_leaf=lambda x: x is None or isinstance(x, fx.Node))
        found: Parts = []
        for node, description in zip(nodes, output.meta["desc"], strict=True):
            if description is not None and not is_size(description):
                add_part(found, description, node)
        return [(base, self.value_of(*parts[0])) for base, parts in found]

    def value_of(self, path: Path, node: Any) -> str | None:
        if not isinstance(node, fx.Node):
            return None
        for _, name, parts in self.arguments:
            for where, each in parts:
                if each is node:
                    return ".".join((name, *where)) if path == () else name
        if path == ():
            return self.name(node.name)
        owner = self.recorder.part.get(node)
        return self.name(owner[0]) if owner else None

    def given(self, event: Event) -> set[str]:
        return {self.name(ref.name) for ref in refs_in(event.out)}

    def used(self, event: Event) -> set[str]:
        return {self.name(ref.name).split(".")[0] for ref in refs_in((event.args, event.kwargs))}

    def live_events(self) -> list[Event]:
        """Returns the events on which a result depends, or that write."""
        events = [e for e in self.recorder.events if e.kind != "input" or e.out.name not in self.settled]
        needed = {value.split(".")[0] for _, value in self.results if value}
        live = []
        for event in reversed(events):
            schema = getattr(event.target, "_schema", None) if event.kind == "call" else None
            if (schema is not None and schema.is_mutable) or self.given(event) & needed:
                live.append(event)
                needed |= self.used(event)
        return live[::-1]

    def write(self, which: str, source: Source) -> str:
        """Writes the function and returns its name. ``which`` is "forward", "backward", or "all" for inference."""
        made = [name for e in self.live if not e.backward for name in sorted(self.given(e))]
        inputs = [name for base, name, _ in self.arguments if not is_tangent(base)]
        tangents = [name for base, name, _ in self.arguments if is_tangent(base)]
        gradients = [(self.names.result(b), v) for b, v in self.results if is_gradient(b)]
        results = [(self.names.result(b), v) for b, v in self.results if not is_gradient(b)]
        needed = {name for e in self.live if e.backward for name in self.used(e)}
        needed |= {value.split(".")[0] for _, value in gradients if value}
        saved = [name for name in dict.fromkeys([*inputs, *made]) if name in needed]
        parameters = {"forward": inputs, "backward": [*saved, *tangents], "all": inputs}[which]
        body = Source(source)
        for name in parameters:
            if self.types.get(name):
                body.comment(f'{name}: "{self.types[name]}"')
        for event in self.live:
            if which == "all" or event.backward == (which == "backward"):
                body.at(event.stack)
                write_event(event, body, self.name, self.types)
        body.lines.append("")
        shown = gradients if which == "backward" else results
        body.comment(", ".join(n for n, _ in shown) + (", and what the backward needs" if which == "forward" else ""))
        values = tuple_of([value for _, value in shown])
        body.line(f"return {values}, {tuple_of(saved)}" if which == "forward" else f"return {values}")
        name = {"all": "forward"}.get(which, which) + "_with_subclasses"
        source.lines = [
            *header(name, parameters),
            *(f"    {line}" if line else "" for line in body.lines),
        ]
        return name
