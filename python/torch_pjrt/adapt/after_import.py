"""Hooks that run when a module is first imported, so that ``import torch`` doesn't have to import it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_before: dict[str, Callable[[], None]] = {}
_after: dict[str, list[Callable[[ModuleType], None]]] = {}


class _Finder:
    """A meta path finder that finds the modules with hooks through the other finders, and ignores all others."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if start := _before.pop(name, None):
            start()
        if name not in _after:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not _Finder)
        spec = next((spec for spec in others if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for then in _after[name]:
                then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _InProgress(ModuleSpec):
    """The spec of a module whose import is in progress: the import system clears ``_initializing`` when it is done."""

    @property
    def _initializing(self) -> bool:
        return bool(vars(self)["_initializing"])

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        vars(self)["_initializing"] = value
        if not value and self.name in sys.modules:
            for then in vars(self).pop("then"):
                then(sys.modules[self.name])


def _listen() -> None:
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def after_import(name: str, then: Callable[[ModuleType], None]) -> None:
    """Calls ``then`` with the module: now if it is imported, else at the end of its import, under its import lock and
    before anybody takes a name from it."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is None:
        _after.setdefault(name, []).append(then)
        _listen()
    elif getattr(spec, "_initializing", False):
        spec.__class__ = _InProgress
        vars(spec).setdefault("then", []).append(then)
    else:
        then(module)


def before_import(name: str, start: Callable[[], None]) -> None:
    """Calls ``start`` once: now if the module is imported, else when its import begins."""
    if name in sys.modules:
        start()
    else:
        _before[name] = start
        _listen()
