"""Finds the modules and optimizers that a function uses: in its closure, its defaults and the globals that it names."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from torch_pjrt.capture.beside import Beside, beside

# Packages whose objects hold no state of the user's.
FOREIGN = ("torch", "torch_pjrt", "numpy", "builtins")
CONTAINERS = (dict, list, set, collections.deque)
DEEPEST = 4  # levels of containers and plain objects that are searched


@dataclass
class Found:
    modules: list[nn.Module] = field(default_factory=list)  # submodules included
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    beside: tuple[Beside, ...] = ()
    containers: list[tuple[str, Any]] = field(default_factory=list)  # of Python values: names of the user's, and each


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def is_foreign(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "builtins").partition(".")[0] in FOREIGN


class _Search:
    def __init__(self) -> None:
        self.found = Found()
        self.seen: set[int] = set()
        self.name = ""  # of the variable that is searched

    def module(self, module: nn.Module) -> None:
        for each in module.modules():
            if id(each) not in self.seen:
                self.seen.add(id(each))
                self.found.modules.append(each)
                for key, value in vars(each).items():
                    if isinstance(value, CONTAINERS) and not key.startswith("_"):
                        self.found.containers.append((key, value))

    def function(self, function: types.FunctionType, depth: int) -> None:
        for self.name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            self.found.containers.append((self.name, cell))
            try:
                self.value(cell.cell_contents, depth)
            except ValueError:  # an empty cell of a name that is not bound yet
                continue
        self.name = "a default"
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.value(default, depth)
        for name in dict.fromkeys(_names(function.__code__)):
            if name in function.__globals__:
                self.name = name
                self.value(function.__globals__[name], depth)

    def value(self, value: Any, depth: int = 0) -> None:
        if isinstance(value, nn.Module):
            self.module(value)
            if depth == 0 and not is_foreign(type(value)):
                self.value(type(value).forward, 1)
            return
        if depth > DEEPEST or id(value) in self.seen or isinstance(value, (torch.Tensor, type, types.ModuleType, str)):
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
                self.found.containers.append((self.name, value))
            for item in value.values() if isinstance(value, dict) else value:
                self.value(item, depth + 1)
        elif hasattr(value, "__dict__") and not is_foreign(type(value)):
            self.value(vars(value), depth)


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


def find(fn: Any, modules: Iterable[nn.Module] = (), optimizers: Iterable[torch.optim.Optimizer] = ()) -> Found:
    """Returns the modules, with submodules, and optimizers that ``fn`` may use, in addition to the given ones."""
    search = _Search()
    for module in modules:
        search.module(module)
    for optimizer in optimizers:
        search.value(optimizer)
    search.value(as_written(fn))
    search.found.beside = beside(search.found.modules)
    return search.found
