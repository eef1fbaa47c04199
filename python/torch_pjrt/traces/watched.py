"""Writes the calls that a watcher saw as the stages of a trace: with subclasses as values, and unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_pjrt.program.subclasses import form_of, is_subclass, leaves_of
from torch_pjrt.traces.events import Event, frames_in, refs_in
from torch_pjrt.traces.naming import identifiers
from torch_pjrt.traces.prologue import relies_on
from torch_pjrt.traces.source import Source, header
from torch_pjrt.traces.subclassed import tuple_of, write_event
from torch_pjrt.traces.types import type_of
from torch_pjrt.traces.unrolled import put_together, write_absent, write_frame
from torch_pjrt.traces.watcher import Watcher

Named = Sequence[tuple[str, torch.Tensor]]


def uses(event: Event) -> set[str]:
    return {ref.name.split(".")[0] for ref in refs_in((event.args, event.kwargs))}


def live(events: Sequence[Event], needed: set[str]) -> list[Event]:
    """Returns the events on which ``needed`` depends, or that have effects; adds the names they use to ``needed``."""
    kept = []
    for event in reversed(events):
        schema = getattr(event.target, "_schema", None) if event.kind == "call" else None
        acts = schema is not None and (schema.is_mutable or not schema.returns)
        given = {ref.name for ref in refs_in(event.out)}
        if acts or (given & needed and not given <= uses(event)):
            kept.append(event)
            needed |= uses(event)
    return kept[::-1]


def settle(watcher: Watcher, inputs: Named) -> None:
    """Tells the watcher which subclasses existed before, and which were built of existing tensors."""
    for _, value in inputs:
        if is_subclass(value):
            watcher.settle(value)
    watcher.made_of({name for _, value in inputs if (name := watcher.name_of(value)) is not None})


class Watched:
    """The stages of watched calls.

    Args:
        inputs: tensors from before, with their names.
        results: results, with their names; those that the watcher didn't see are left out.
        home: the device that a program's device replaces.
    """

    def __init__(self, watcher: Watcher, inputs: Named, results: Named, home: torch.device | None = None) -> None:
        self.watcher, self.home = watcher, home
        settle(watcher, inputs)
        self.results = [(name, value, watcher.ref(value).name) for name, value in results]
        needed = {value.split(".")[0] for _, _, value in self.results}
        needed_parts = {
            watcher.plain_in(leaf).name for _, value, _ in self.results for _, leaf in leaves_of(value)
        }  # fmt: skip
        self.events = live(watcher.events, needed)
        self.lines = live(watcher.lines, needed_parts)
        used = needed | needed_parts
        used |= {watcher.part[name][0] for name in used if name in watcher.part}
        given = {watcher.name_of(value): name for name, value in reversed(list(inputs))}
        order = [name for each in inputs if (name := watcher.name_of(each[1])) in watcher.inputs]
        order = [name for name in dict.fromkeys([*order, *watcher.inputs]) if name in used]
        self.constants = {n: t for n, t in watcher.constants.items() if n not in given}
        self.inputs = [name for name in order if name not in self.constants]
        self.rename = dict(zip(self.inputs, identifiers([given.get(n) or n for n in self.inputs]), strict=True))
        for name in self.inputs:
            for path, part in (watcher.inputs[name] or {}).items():
                self.rename[part] = "_".join([self.rename[name], *(p.strip("_") for p in path)])
        self.taken = set(self.rename.values())
        self.types = {self.name(name): text for name, text in watcher.types.items()}
        self.accounts = self.counted()

    def name(self, name: str) -> str:
        head, _, rest = name.partition(".")
        new = self.rename.get(head, head)
        while head not in self.rename and new in self.taken:
            new += "_"
        return f"{new}.{rest}" if rest else new

    def counted(self) -> dict[Event, dict[str, int]]:
        found: dict[Event, dict[str, int]] = {}
        shown = set(map(id, self.lines))
        for event in self.watcher.lines:
            if frames := frames_in(event.parent):
                counts = found.setdefault(frames[-1], {"shown": 0, "dead": 0})
                counts["shown" if id(event) in shown else "dead"] += 1
        return found

    def prologue(self, source: Source) -> list[str]:
        """Returns lines with the subclasses of the inputs."""
        values = {self.watcher.name_of(tensor): tensor for tensor in list(self.watcher.names)}
        forms = [(self.name(name), form_of(values[name])) for name in self.inputs if name in values]
        return [line for name, form in forms if form is not None for line in relies_on(name, form, source)]

    def body(self, source: Source, function: str, write: Callable[[Source], list[str]]) -> None:
        source.home = self.home
        body = Source(source)
        for name in self.inputs:
            body.comment(f'{self.name(name)}: "{self.types[self.name(name)]}"')
        for name, value in self.constants.items():
            have = body.name_object(value, self.name(name))
            if have != self.name(name):
                body.lines.append(f"{self.name(name)} = {have}")
        values = write(body)
        body.lines.append("")
        if self.results:
            body.comment(", ".join(name for name, _, _ in self.results))
        owners = dict.fromkeys(self.watcher.part.get(n, (n,))[0] for n in self.watcher.written)
        if written := [self.name(n) for n in owners if n in self.inputs]:
            body.comment("written in place: " + ", ".join(written))
        body.line(f"return {tuple_of(values)}")
        lines = (f"    {line}" if line else "" for line in body.lines)
        source.lines = [*header(function, [self.name(name) for name in self.inputs]), *lines]

    def with_subclasses(self, source: Source, function: str) -> None:
        def write(body: Source) -> list[str]:
            for event in self.events:
                self.at(event, body)
                write_event(event, body, self.name, self.types)
            return [self.name(value) for _, _, value in self.results]

        self.body(source, function, write)

    def unrolled(self, source: Source, function: str) -> None:
        self.body(source, function, self.write_lines)

    def write_lines(self, body: Source) -> list[str]:
        used = {name for event in self.lines for name in uses(event)}
        used |= {self.watcher.plain_in(leaf).name for _, value, _ in self.results for _, leaf in leaves_of(value)}
        for name in self.inputs:
            for path, part in (self.watcher.inputs[name] or {}).items():
                if part in used:
                    body.lines.append(f"{self.name(part)} = {'.'.join((self.name(name), *path))}")
        seen: dict[Event, int] = {}
        for event in self.lines:
            self.at(event, body)
            if frames := frames_in(event.parent):
                last = frames[-1]
                counts = self.accounts[last]
                seen[last] = seen.get(last, 0) + 1
                write_frame(
                    body, frames, self.name, event.code, (seen[last], counts["shown"], sum(counts.values())), counts
                )
            write_event(event, body, self.name, self.types)
        absent = [(event, counts["dead"], counts) for event, counts in self.accounts.items() if not counts["shown"]]
        write_absent(body, absent, self.name)
        return [self.written_result(value, name, body) for _, value, name in self.results]

    def written_result(self, value: Any, name: str, body: Source) -> str:
        if not is_subclass(value):
            return self.name(self.watcher.plain_in(value).name)
        parts = [(path, self.name(self.watcher.plain_in(leaf).name)) for path, leaf in leaves_of(value)]
        made = self.name(name).replace(".", "_")
        if name in self.rename:
            return made
        body.line(f"{made} = {put_together(value, parts, body)}", [(made, type_of(value))])
        return made

    def at(self, event: Event, body: Source) -> None:
        body.at(event.stack, "backward: " if event.backward else "")
