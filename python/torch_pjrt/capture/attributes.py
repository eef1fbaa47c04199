"""Attributes of modules that a function reads, and those that it sets to other values than tensors.

Values that it reads (``self.dropout.p``) are constants of its program, which is valid as long as they are the same.

A program sets nothing in Python (``self.length = x.shape[1]``), so such effects must be equal in each call. They are if
a second run of the function, which begins with the attributes that the first one set, sets nothing else and records the
same program. The attributes then stay set, and each call of the program sets them again.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.capture.finding import names_of
from torch_pjrt.errors import CaptureError

# Attributes that torch.compile, of PyTorch and of Lightning, sets on a module.
NOTES_OF_COMPILE = ("_is_torch_compile", "_compile_kwargs")
PLAIN = (bool, int, float, complex, str, bytes, range, torch.dtype, torch.device)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))


def is_as_before(now: Any, before: Any) -> bool:
    """Whether a module's attribute holds the object that it held before, or an equal plain value."""
    if now is before:
        return True
    if type(now) is not type(before):
        return False
    if isinstance(now, (list, tuple)):
        return len(now) == len(before) and all(map(is_as_before, now, before))
    if isinstance(now, dict):
        return list(now) == list(before) and all(map(is_as_before, now.values(), before.values()))
    return isinstance(now, PLAIN) and bool(now == before)


@dataclass
class Assigned:
    """An attribute that a captured function sets."""

    entries: dict[str, Any]  # the module's __dict__
    key: str
    value: Any
    name: str  # the module's

    def assign(self) -> None:
        self.entries[self.key] = pytree.tree_map(lambda leaf: leaf, self.value)  # containers are made anew

    def place(self) -> tuple[int, str]:
        return id(self.entries), self.key


def assign(attributes: Iterable[Assigned]) -> None:
    """Sets the attributes, as each call of the function does."""
    for each in attributes:
        each.assign()


@contextmanager
def noting(read: defaultdict[int, set[str]]) -> Iterator[None]:
    """Adds the names of the attributes of modules that are read in the block, by the id of the module."""
    before = torch.nn.Module.__getattribute__

    def noted(module: torch.nn.Module, name: str) -> Any:
        if name not in OF_EVERY_MODULE:
            read[id(module)].add(name)
        return before(module, name)

    own = torch.nn.Module.__dict__.get("__getattribute__")
    torch.nn.Module.__getattribute__ = noted
    try:
        yield
    finally:
        if own is None:
            del torch.nn.Module.__getattribute__
        else:
            torch.nn.Module.__getattribute__ = own


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, (*PLAIN, type(None))) for each in value)


def _is_of_class(module: torch.nn.Module, key: str) -> bool:
    """Whether the module's class has a plain value of this name, which one of the module's own would hide."""
    value = inspect.getattr_static(type(module), key, NotImplemented)
    return isinstance(value, (*PLAIN, tuple, type(None)))


@dataclass
class Read:
    """Attributes of a module that a captured function reads, with their values: ``(name, value, name, value, ...)``."""

    entries: dict[str, Any]  # the module's __dict__
    values: tuple[Any, ...]
    name: str  # the module's

    def changed(self) -> str | None:
        """Returns which attribute has another value now, if one has."""
        for key, value in zip(self.values[::2], self.values[1::2], strict=True):
            if not _C.Captured.has_values(self.entries, (key, value)):
                return f"'{key}' of module '{self.name}'"
        return None


class Attributes:
    """The attributes of modules at one time."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        names = names_of(modules)
        self.before = [(each, names[id(each)] or type(each).__name__, dict(each.__dict__)) for each in modules]

    def restore(self) -> None:
        """Restores old values. New attributes stay: they may show, for instance, that the function installed hooks."""
        for module, _, before in self.before:
            module.__dict__.update(before)

    def read(self, names: defaultdict[int, set[str]], assigned: Iterable[Assigned]) -> list[Read]:
        """Returns the attributes under these names, but for tensors, containers of other objects, and those that each
        call sets."""
        skipped = {each.place() for each in assigned}
        result = []
        for module, name, before in self.before:
            values: list[Any] = []
            for key in sorted(names[id(module)]):
                if key not in before and not _is_of_class(module, key):
                    continue
                value = before.get(key, NotImplemented)  # while the module has none of its own
                is_container = isinstance(value, (dict, list, set)) and not _is_list(value)
                if not is_container and not isinstance(value, torch.Tensor) and (id(vars(module)), key) not in skipped:
                    values += key, list(value) if isinstance(value, list) else value
            if values:
                result.append(Read(vars(module), tuple(values), name))
        return result

    def assigned(self) -> list[Assigned]:
        """Returns the attributes whose values have changed since."""
        return [
            Assigned(module.__dict__, key, value, name)
            for module, name, before in self.before
            for key, value in module.__dict__.items()
            if key not in NOTES_OF_COMPILE and (key not in before or not is_as_before(value, before[key]))
        ]


class Text:
    """The recording of a run, to compare with that of another run of the same function.

    Args:
        results: tensors, and the other leaves of the results.
        state: the tensors that the program takes, and whether each is looked up again in every call.
    """

    def __init__(self, trace: _C.Trace, results: Sequence[Any], state: Sequence[tuple[torch.Tensor, bool]]) -> None:
        made = _C.export_trace(trace, [each for each in results if isinstance(each, torch.Tensor)])
        self.program = [(each.platform, each.text) for each in made.texts], made.parameters, made.updated
        self.beside = [each for each in results if not isinstance(each, torch.Tensor)]
        self.constants, self.state = made.constants, state

    def is_as(self, other: Text) -> bool:
        if self.program != other.program or self.beside != other.beside or len(self.state) != len(other.state):
            return False
        constants = zip(self.constants, other.constants, strict=True)
        state = zip(self.state, other.state, strict=True)
        return all(equal(a, b) for a, b in constants) and all(
            a is b if is_found or was_found else equal(a, b) for (a, is_found), (b, was_found) in state
        )


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu())


def check_same(first: Text, second: Text, assigned: Sequence[Assigned], again: Sequence[Assigned]) -> None:
    """Raises CaptureError if a second run sets other attributes or records another program."""
    if again:
        sets, why = again[0], "to something else in each call"
    elif not second.is_as(first):
        sets, why = assigned[0], "and computes something else once it is set: call it once before it is captured"
    else:
        return
    raise CaptureError(
        f"the captured function sets '{sets.key}' of module '{sets.name}' {why}. A program can't: keep a tensor in a "
        "buffer (register_buffer) that is updated in place, or set the attribute outside of the function"
    )
