"""Records calls while it watches, with the plain calls that each became.

The two views are those of a compiled function, for calls on the device or on a program's placeholders. Values keep
their names as long as they live, and nothing is kept alive, so that the program is the same as without a watcher.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary, WeakIdRef

from torch_pjrt.program.stack import user_frame
from torch_pjrt.program.subclasses import is_subclass, leaves_of, parts_of
from torch_pjrt.traces.events import Event, Ref
from torch_pjrt.traces.frames import Frames, line_of_subclass
from torch_pjrt.traces.types import type_of

Path = tuple[str, ...]


class Watcher(Frames):
    """Records the calls of one thread within ``with watcher:``."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Event] = []  # the plain calls, in order
        self.names: Any = WeakIdKeyDictionary(ref_type=WeakIdRef)
        self.part: dict[str, tuple[str, Path]] = {}  # from a part to its owner and path
        self.known: set[str] = set()  # names that the view with subclasses defines
        self.inputs: dict[str, Any] = {}  # values from before: a subclass's parts; None for other tensors
        self.builds: dict[str, list[Event]] = {}  # how such a subclass is built of its parts
        self.constants: dict[str, torch.Tensor] = {}  # inputs on the host of unknown origin
        self.written: dict[str, None] = {}
        self.quiet = False

    def line(self) -> str:
        frame = user_frame()
        if frame is None:
            return ""
        return f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}'

    def name_of(self, tensor: Any) -> str | None:
        found: str | None = self.names.get(tensor)
        return found

    def called(self, tensor: Any, name: str) -> Ref:
        self.names[tensor] = name
        self.types.setdefault(name, type_of(tensor))
        return Ref(name)

    def plain(self, tensor: Any) -> Ref:
        name = self.name_of(tensor)
        if name is None:
            name = self.fresh("given")
            self.inputs[name] = None
            self.known.add(name)
            if tensor.device.type != "pjrt":
                self.constants[name] = tensor.detach()
            return self.called(tensor, name)
        if not self.stack and name not in self.known:
            if name in self.part:
                owner, path = self.part[name]
                event = self.emit(Event("attr", path, (Ref(owner),), {}, Ref(name), self.line(), self.in_backward()))
                event.types[name] = type_of(tensor)
            self.known.add(name)
        return Ref(name)

    def subclass(self, tensor: Any) -> Ref:
        known = self.name_of(tensor)
        if known is not None:
            return Ref(known)
        parts = [(path, leaf, self.name_of(leaf)) for path, leaf in leaves_of(tensor)]
        owners = {self.owner(path, name) for path, _, name in parts}
        if parts and len(owners) == 1 and (found := next(iter(owners))) is not None:
            owner, prefix = found
            if not prefix:  # another wrapper of the same value
                return self.called(tensor, owner)
            if self.stack:
                return Ref(".".join((owner, *prefix)))
            name = self.fresh_subclass()
            event = self.emit(Event("attr", prefix, (Ref(owner),), {}, Ref(name), self.line(), self.in_backward()))
            event.types[name] = type_of(tensor)
            self.known.add(name)
            return self.called(tensor, name)
        name = self.fresh_subclass()
        if all(each is None for _, _, each in parts):
            self.inputs[name] = {}
            for path, leaf, _ in parts:
                inner = self.fresh("_".join([name, *(p.strip("_") for p in path)]))
                self.called(leaf, inner)
                self.inputs[name][path] = inner
                self.part[inner] = (name, path)
            self.known.add(name)
            self.builds[name] = []
            self.putting_together(tensor, name, self.builds[name])
            return self.called(tensor, name)
        self.emit(self.build(tensor, name, {k: self.ref(v) for k, v in parts_of(tensor)[0].items()}))
        self.called(tensor, name)
        self.take_parts(tensor, name)
        if not self.stack:
            self.known.add(name)
        return Ref(name)

    def build(self, tensor: Any, name: str, args: dict[str, Any]) -> Event:
        about = {"context": parts_of(tensor)[1], "size": tuple(tensor.shape), "stride": tuple(tensor.stride())}
        event = Event("build", type(tensor), args, about, Ref(name), self.line(), self.in_backward())
        event.types[name] = type_of(tensor)
        return event

    def putting_together(self, tensor: Any, name: str, into: list[Event]) -> None:
        args: dict[str, Any] = {}
        for key, part in parts_of(tensor)[0].items():
            args[key] = (
                Ref(self.name_of(part) or f"{name}_{key.strip('_')}") if isinstance(part, torch.Tensor) else part
            )
            if is_subclass(part):
                self.putting_together(part, args[key].name, into)
        into.append(self.build(tensor, name, args))

    def made_of(self, there: set[str]) -> None:
        """Builds subclasses of which only the parts existed before from these."""
        for owner, parts in list(self.inputs.items()):
            if not parts or owner in there or not all(part in there for part in parts.values()):
                continue
            del self.inputs[owner]
            for part in parts.values():
                self.inputs[part] = None
                del self.part[part]
            taken = set(parts.values())
            self.events = [e for e in self.events if e.kind != "attr" or e.out.name not in taken]
            self.events[:0] = self.builds[owner]

    def settle(self, tensor: Any) -> None:
        """Takes the used parts out of a subclass that existed before and was not used itself."""
        parts = [(path, leaf, self.name_of(leaf)) for path, leaf in leaves_of(tensor)]
        if self.name_of(tensor) is not None or not any(name in self.inputs for _, _, name in parts):
            return
        owner = self.fresh_subclass()
        self.called(tensor, owner)
        taken = {path: name for path, _, name in parts if name in self.inputs and name not in self.part}
        for path, name in taken.items():
            del self.inputs[name]
            self.constants.pop(name, None)
            self.part[name] = (owner, path)
            event = Event("attr", path, (Ref(owner),), {}, Ref(name), "", False)
            event.types[name] = self.types[name]
            self.events.insert(0, event)
        self.inputs[owner] = taken

    def owner(self, path: Path, name: str | None) -> tuple[str, Path] | None:
        owner, where = self.part.get(name or "", ("", ()))
        return (owner, where[: -len(path)]) if owner and where[-len(path) :] == path else None

    def take_parts(self, tensor: Any, name: str) -> None:
        for path, leaf in leaves_of(tensor):
            self.part[self.plain_in(leaf).name] = (name, path)

    def plain_in(self, leaf: Any) -> Ref:
        """Returns a part's name, without a line that takes it out."""
        name = self.name_of(leaf)
        return self.plain(leaf) if name is None else Ref(name)

    def result(self, x: Any, event: Event, hint: str) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        name = self.name_of(x)
        if is_subclass(x):
            if name is None:
                name = self.fresh_subclass()
                self.called(x, name)
            self.take_parts(x, name)
        elif name is None:
            name = self.fresh(hint)
            self.called(x, name)
        if not self.stack:
            self.known.add(name)
        event.types[name] = self.types[name] = type_of(x)
        return Ref(name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.passing:
            self.passing = False
            return NotImplemented
        kwargs = kwargs or {}
        if self.quiet or getattr(func, "namespace", "") == "profiler":  # e.g. an optimizer's range
            return func(*args, **kwargs)
        operands = [x for x in pytree.arg_tree_leaves(*args, **kwargs) if is_subclass(x)]
        if operands and self.follow is not None:
            with self:
                out = self.follow(func, args, kwargs)
            if out is not NotImplemented:
                return out
        event = self.begin(func, args, kwargs)
        event.code = line_of_subclass() if self.stack else ""
        if not operands:
            self.lines.append(event)
        self.stack.append(event)
        try:
            out = self.unroll(event, func, args, kwargs, operands) if operands else func(*args, **kwargs)
        finally:
            self.stack.pop()
        hint = getattr(func, "_schema", func).name if hasattr(func, "_schema") else func.name()
        self.end(event, out, hint.rpartition("::")[2].strip("_") or "value")
        self.note_writes(event)
        return out

    def end(self, event: Event, out: Any, hint: str) -> None:
        event.out = pytree.tree_map(lambda x: self.result(x, event, hint), out)

    def claimed(self, op: Any, rule: Any, args: Any, kwargs: Any) -> Any:
        event = self.begin(rule, args, kwargs)
        event.handler, event.claimed = rule.__name__, op
        self.stack.append(event)
        try:
            out = rule(*args, **kwargs)
        finally:
            self.stack.pop()
        self.end(event, out, "value")
        return out

    @contextmanager
    def unseen(self) -> Iterator[None]:
        self.quiet = True
        try:
            yield
        finally:
            self.quiet = False

    def note_writes(self, event: Event) -> None:
        schema = getattr(event.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            return
        given = dict(zip((a.name for a in schema.arguments), event.args, strict=False)) | event.kwargs
        for argument in schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write and argument.name in given:
                for ref in pytree.tree_leaves(given[argument.name], is_leaf=lambda x: isinstance(x, Ref)):
                    if isinstance(ref, Ref):
                        self.written[ref.name] = None
