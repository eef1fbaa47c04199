"""Applies the changes of one library: all that its file here makes, or none."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch

from torch_pjrt.adapt.after_import import after_import

_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class DoesNotFit(Exception):
    """Raised if a library's function isn't the one that is known here."""


def has_module(name: str) -> bool:
    """Whether there is such a module; imports nothing."""
    package, *parts = name.split(".")
    spec = importlib.util.find_spec(package)
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return False
        name, folders = f"{spec.name}.{part}", spec.submodule_search_locations
        try:
            spec = PathFinder.find_spec(name, folders)
        except KeyError:  # a namespace package, which looks for its parent among imported modules
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [f"{folder}/{part}" for folder in folders]
    return spec is not None


def check_calls(outer: Any, inner: Any) -> None:
    """Raises DoesNotFit unless ``outer`` takes every call that ``inner`` takes, with the parameters that it names."""
    signature = inspect.signature(inner)
    given = list(signature.parameters.values())
    taken = list(inspect.signature(outer, follow_wrapped=False).parameters.values())
    any_place, any_name = (any(parameter.kind == kind for parameter in taken) for kind in _REST)
    named = [parameter for parameter in taken if parameter.kind not in _REST]

    def described(parameter: inspect.Parameter) -> tuple[object, ...]:
        return parameter.name, parameter.kind, parameter.default

    fits = [described(parameter) for parameter in given[: len(named)]] == [described(each) for each in named]
    for parameter in given[len(named) :]:
        fits &= any_place or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
        fits &= any_name or parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL)
    if not fits:
        raise DoesNotFit(f"{inner.__qualname__}{signature} takes other arguments")


def or_out_of_memory(inner: Any) -> Any:
    """Returns a test for ``Adaptation.around`` that accepts PyTorch's exception, too, which this device raises."""
    return lambda exception: isinstance(exception, torch.OutOfMemoryError) or inner(exception)


@functools.cache
def of_wheel(wheel: str) -> Adaptation:
    """Returns the adaptation of all packages of a wheel: pytorch_lightning includes lightning_fabric."""
    try:
        return Adaptation(wheel, importlib.metadata.version(wheel))
    except importlib.metadata.PackageNotFoundError:
        return Adaptation(wheel, "of unknown version")


class Adaptation:
    """The changes of a library. The first that doesn't match reverts all of them, warns, and ends the adaptation."""

    def __init__(self, name: str, version: str) -> None:
        self._library = f"{name} {version}"
        self._undo: list[Callable[[], object]] = []
        self._fits = True

    def after_import(self, name: str, then: Callable[[Adaptation, ModuleType], None]) -> None:
        """Calls ``then`` when a module of the library, which must exist, has been imported."""

        def has_to_have() -> None:
            if not has_module(name):
                raise DoesNotFit("there is no such module")

        self._try(name, has_to_have)
        if self._fits:
            after_import(name, lambda module: self._try(name, lambda: then(self, module)))

    def undo_by(self, undo: Callable[[], object]) -> None:
        """Registers the function that reverts a change."""
        self._undo.append(undo)

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute of a module, a class or an object."""
        if name in vars(owner):
            self.undo_by(functools.partial(setattr, owner, name, vars(owner)[name]))
        else:
            self.undo_by(functools.partial(delattr, owner, name))
        setattr(owner, name, value)

    def around(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replaces a function, a static method or a property's getter by ``make(function)``, also in each module that
        has imported the function by name."""
        inner = getattr(owner, name)
        held = inspect.getattr_static(owner, name)
        kind = type(held) if isinstance(held, property | staticmethod) else None
        if isinstance(inner, property):
            inner = inner.fget
        made = make(inner)
        check_calls(made, inner)
        outer = functools.wraps(inner)(made)
        self.put(owner, name, kind(outer) if kind else outer)
        if isinstance(owner, ModuleType):
            for module in list(sys.modules.values()):
                for key, value in list(vars(module).items()) if isinstance(module, ModuleType) else ():
                    if value is inner:
                        self.put(module, key, outer)

    def _try(self, name: str, change: Callable[[], None]) -> None:
        if not self._fits:
            return
        try:
            change()
        except Exception as error:
            self._fits = False
            while self._undo:
                self._undo.pop()()
            why = str(error) if isinstance(error, DoesNotFit) else f"{type(error).__name__}: {error}"
            warnings.warn(
                f"torch_pjrt leaves {self._library} alone, as {name} isn't what is known here: {why}. "
                "It may not choose the device by itself. Name the device where the library takes one; "
                "TORCH_PJRT_AUTOSELECT=0 silences this",
                stacklevel=2,
            )
