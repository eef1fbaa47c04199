"""Finds the modules and optimizers that a function uses: in its closure, its defaults and the globals that it names."""

from __future__ import annotations

import collections
import dis
import functools
import random
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from torch_pjrt.capture.beside import Beside, beside

# Packages whose objects hold no state of the user's.
FOREIGN = ("torch", "torch_pjrt", "numpy", "builtins")
CONTAINERS = (dict, list, set, collections.deque)
DEEPEST = 4  # levels of containers and plain objects that are searched
MOST_BYTES = 1 << 20  # of a NumPy array that is compared


@dataclass
class Found:
    modules: list[nn.Module] = field(default_factory=list)  # submodules included
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    beside: tuple[Beside, ...] = ()
    things: list[tuple[str, Any]] = field(default_factory=list)  # that Effects watches, by the user's names
    tensors: dict[int, list[tuple[Any, Any]]] = field(default_factory=dict)  # by id, the containers and keys of each
    effects: Any = None  # of the capture at work
    read: collections.defaultdict[int, set[str]] = field(  # names of attributes that it reads, by ids of modules
        default_factory=lambda: collections.defaultdict(set)
    )


@dataclass
class Global:
    """A variable that a function assigns."""

    entries: dict[str, Any]
    key: str


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def is_random(value: Any) -> bool:
    """Whether this is a generator of Python's or NumPy's random numbers, or a module that has one."""
    if isinstance(value, types.ModuleType):
        return value.__name__ in ("random", "numpy.random")
    return isinstance(value, random.Random) or type(value).__module__.startswith("numpy.random")


def is_small_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "tobytes") and value.nbytes <= MOST_BYTES


def has_state(value: Any) -> bool:
    """Whether a value taken from this, or written into it, is another in each call."""
    return isinstance(value, Iterator) or is_random(value) or is_small_array(value)


def is_foreign(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "builtins").partition(".")[0] in FOREIGN


class _Search:
    def __init__(self) -> None:
        self.found = Found()
        self.seen: set[int] = set()
        self.name = ""  # of the variable that is searched

    def tensor(self, value: Any, container: Any, key: Any) -> None:
        if isinstance(value, torch.Tensor):
            places = self.found.tensors.setdefault(id(value), [])
            if not any(place[0] is container and place[1] == key for place in places):
                places.append((container, key))

    def watch(self, name: str, value: Any) -> None:
        if isinstance(value, CONTAINERS) or has_state(value):
            self.found.things.append((name, value))
        elif hasattr(value, "__dict__") and not isinstance(value, nn.Module) and not is_foreign(type(value)):
            self.found.things.append((name, vars(value)))

    def classes(self, of: type) -> None:
        for each in of.__mro__:
            if id(each) not in self.seen and not is_foreign(each):
                self.seen.add(id(each))
                self.found.things.append((each.__name__, each))
                for key, value in vars(each).items():
                    if isinstance(value, CONTAINERS) and not key.startswith("_"):
                        self.found.things.append((key, value))

    def module(self, module: nn.Module) -> None:
        for each in module.modules():
            if id(each) not in self.seen:
                self.seen.add(id(each))
                self.found.modules.append(each)
                for key, value in vars(each).items():
                    if not key.startswith("_"):
                        self.watch(key, value)
                        self.tensor(value, vars(each), key)
                self.classes(type(each))
                if not is_foreign(type(each)):
                    self.globals_set_in(type(each).forward)

    def globals_set_in(self, function: Any) -> None:
        for code in _codes(function.__code__) if isinstance(function, types.FunctionType) else ():
            for instruction in dis.get_instructions(code):
                if instruction.opname == "STORE_GLOBAL":
                    self.found.things.append((instruction.argval, Global(function.__globals__, instruction.argval)))

    def function(self, function: types.FunctionType, depth: int) -> None:
        self.found.things.append((function.__name__, vars(function)))
        self.globals_set_in(function)
        for self.name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            self.found.things.append((self.name, cell))
            try:
                self.tensor(cell.cell_contents, cell, None)
                self.value(cell.cell_contents, depth)
            except ValueError:  # an empty cell of a name that is not bound yet
                continue
        self.name = "a default"
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.value(default, depth)
        for name in dict.fromkeys(name for code in _codes(function.__code__) for name in code.co_names):
            if name in function.__globals__:
                self.name = name
                self.tensor(function.__globals__[name], function.__globals__, name)
                self.value(function.__globals__[name], depth)

    def value(self, value: Any, depth: int = 0) -> None:
        if isinstance(value, nn.Module):
            self.module(value)
            if depth == 0 and not is_foreign(type(value)):
                self.value(type(value).forward, 1)
            return
        if isinstance(value, type):
            self.classes(value)
            return
        if depth > DEEPEST or id(value) in self.seen or isinstance(value, (torch.Tensor, types.ModuleType, str)):
            return
        self.seen.add(id(value))
        if isinstance(value, torch.optim.Optimizer):
            self.found.optimizers.append(value)
        elif isinstance(value, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self.value(part, depth)
        elif isinstance(value, types.MethodType):
            self.value(value.__self__, depth)
            self.value(value.__func__, depth)
        elif isinstance(value, types.FunctionType):
            if not is_foreign(value):
                self.function(value, depth + 1)
        elif isinstance(value, (*CONTAINERS, tuple)):
            if not isinstance(value, tuple):
                self.watch(self.name, value)
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                if isinstance(value, (dict, list)):
                    self.tensor(item, value, key)
                self.value(item, depth + 1)
        elif has_state(value):
            self.watch(self.name, value)
        elif hasattr(value, "__dict__") and not is_foreign(type(value)):
            self.classes(type(value))
            self.value(vars(value), depth)


def things_in(arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Returns what Effects watches of arguments, by the names of parameters."""
    search = _Search()
    for search.name, value in arguments.items():
        search.value(value)
    return search.found.things


def names_of(modules: Iterable[nn.Module]) -> dict[int, str]:
    """The name of each module (by id) within the first that it is a part of; '' of that one itself."""
    names: dict[int, str] = {}
    for module in modules:
        if id(module) not in names:
            for name, each in module.named_modules():
                names.setdefault(id(each), name)
    return names


def as_written(fn: Any) -> Any:
    """Returns the function or module that torch.compile made ``fn`` of, or ``fn`` itself."""
    return getattr(fn, "_orig_mod", None) or getattr(fn, "_torchdynamo_orig_callable", None) or fn


def find(
    fn: Any,
    modules: Iterable[nn.Module] = (),
    optimizers: Iterable[torch.optim.Optimizer] = (),
    arguments: Mapping[str, Any] = types.MappingProxyType({}),
) -> Found:
    """Returns the modules, with submodules, and optimizers that ``fn`` may use, in addition to the given ones.

    ``arguments``: those of a call, by the names of parameters."""
    search = _Search()
    for module in modules:
        search.module(module)
    for optimizer in optimizers:
        search.value(optimizer)
    search.value(as_written(fn))
    for search.name, argument in arguments.items():
        search.value(argument)
    search.found.beside = beside(search.found.modules)
    return search.found
