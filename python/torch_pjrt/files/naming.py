"""The names of state in a file: those of ``state_dict()`` for modules; an optimizer's state is named by parameter."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torch_pjrt.capture.finding import DEEPEST, Found, is_foreign
from torch_pjrt.program.subclasses import is_compound

HYPERPARAMETERS = "hyperparameters"
RANDOM_STATE = "random_state"


def _roots(found: Found) -> list[torch.nn.Module]:
    """Returns the modules that are in no other module."""
    inside = {id(child) for module in found.modules for child in module.modules() if child is not module}
    return [module for module in found.modules if id(module) not in inside]


def _distinct(items: list[Any], alone: str, names: dict[int, str]) -> list[str]:
    """Returns a name for each item: the function's own name for it, else the name of its class."""
    if len(items) == 1:
        return [alone]
    given: list[str] = []
    for item in items:
        name = wanted = names.get(id(item), type(item).__name__.lower())
        number = 1
        while name in given:
            number += 1
            name = f"{wanted}{number}"
        given.append(name)
    return given


def _held(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yields the objects in a function's closure and the globals that it names, with their names."""
    fn = getattr(fn, "__wrapped__", fn)
    if isinstance(fn, types.MethodType):
        fn = fn.__func__
    if not isinstance(fn, types.FunctionType):
        return
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # the variable is not bound yet
            continue
    for name in fn.__code__.co_names:
        if name in fn.__globals__:
            yield name, fn.__globals__[name]


def has_gaps(tensor: torch.Tensor) -> bool:
    """Whether there are gaps or overlaps in the tensor's memory."""
    is_plain = tensor.layout == torch.strided and not is_compound(tensor)
    return is_plain and not torch.ops.aten.is_non_overlapping_and_dense(tensor)


def without_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a contiguous copy in memory with one more element: a program is not given all of the tensor's memory, so
    ``as_strided`` is refused."""
    memory = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    return memory[:-1].view(tensor.shape).copy_(tensor)


class Names:
    """The names of tensors, by identity: one name for each, with aliases for tensors that have several.

    Names of a single module have no prefix, and a single optimizer is ``optimizer``. Several modules or optimizers have
    the function's names for them.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.aliases: dict[str, list[str]] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.followers: dict[str, list[torch.Tensor]] = {}  # the tensors behind aliases
        self.optimizers: dict[int, str] = {}  # prefixes, by id
        self.copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # of buffers, by id
        self.parameters: list[str] = []  # names of hyperparameters: "optimizer.param_groups.0.lr"

    def add(self, tensor: torch.Tensor, name: str) -> str:
        known = self.names.get(id(tensor))
        if known == name or (known is not None and name in self.aliases.get(known, ())):
            return known
        if known is not None:
            if name not in self.tensors:
                self.aliases.setdefault(known, []).append(name)
            return known
        number, wanted = 1, name
        while name in self.tensors:
            number += 1
            name = f"{wanted}.{number}"
        self.names[id(tensor)] = name
        self.tensors[name] = tensor
        return name

    @contextmanager
    def dense_buffers(self, modules: Iterable[torch.nn.Module]) -> Iterator[None]:
        """Buffers that are views with gaps or overlaps in their memory are copies without them in this scope."""
        held = [(module._buffers, key, value) for module in modules for key, value in module._buffers.items()]
        views = [(entries, key, value) for entries, key, value in held if value is not None and has_gaps(value)]
        for entries, key, value in views:
            entries[key] = self.copies.setdefault(id(value), (value, without_gaps(value.detach())))[1]
        try:
            yield
        finally:
            for entries, key, value in views:
                entries[key] = value

    def learn(self, fn: Callable[..., Any], found: Found) -> None:
        """Adds the names of all state that a function may use."""
        held = list(_held(fn))
        called = {id(value): name for name, value in held}
        roots = _roots(found)
        for module, prefix in zip(roots, _distinct(roots, "", called), strict=True):
            for name, tensor in module.named_parameters(remove_duplicate=False):
                self.add(tensor, f"{prefix}.{name}" if prefix else name)
            for name, tensor in module.named_buffers(remove_duplicate=False):
                self.add(tensor, f"{prefix}.{name}" if prefix else name)
        for optimizer, prefix in zip(found.optimizers, _distinct(found.optimizers, "optimizer", called), strict=True):
            self.optimizers[id(optimizer)] = prefix
            self._learn_optimizer(optimizer, prefix)
        for name, value in held:
            self._learn_object(value, name, 0)

    def _learn_object(self, value: Any, name: str, depth: int) -> None:
        """Adds tensors in containers and in plain objects, such as a cache of keys and values."""
        if isinstance(value, torch.Tensor):
            self.add(value, name)
        elif depth > DEEPEST or isinstance(
            value, (str, type, types.ModuleType, torch.nn.Module, torch.optim.Optimizer)
        ):
            return
        elif isinstance(value, dict):
            for key, each in value.items():
                self._learn_object(each, f"{name}.{key}", depth + 1)
        elif isinstance(value, (list, tuple)):
            for i, each in enumerate(value):
                self._learn_object(each, f"{name}.{i}", depth + 1)
        elif hasattr(value, "__dict__") and not is_foreign(type(value)) and not callable(value):
            self._learn_object(vars(value), name, depth + 1)

    def _learn_optimizer(self, optimizer: torch.optim.Optimizer, prefix: str) -> None:
        for g, group in enumerate(optimizer.param_groups):
            for i, parameter in enumerate(group["params"]):
                name = self.names.get(id(parameter)) or self.add(parameter, f"{prefix}.param_groups.{g}.params.{i}")
                for key, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, torch.Tensor):
                        self.add(value, f"{prefix}.state.{name}.{key}")
            for key, value in group.items():
                if isinstance(value, torch.Tensor):
                    self.add(value, f"{prefix}.param_groups.{g}.{key}")

    def follow(self, leader: str, tensor: torch.Tensor) -> None:
        """Makes the tensor's name an alias: a scalar that always equals its leader has no state of its own."""
        name = self.names.get(id(tensor))
        if name is None or name == leader:
            return
        del self.tensors[name]
        self.names[id(tensor)] = leader
        self.aliases.setdefault(leader, []).append(name)
        self.followers.setdefault(leader, []).append(tensor)
