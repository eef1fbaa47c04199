"""A library gets all changes, or none."""

from __future__ import annotations

import functools
import sys
import types
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from torch_pjrt.libraries.adaptation import Adaptation, DoesNotFit, check_calls, has_module


def module_of(name: str, source: str = "", **names: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    exec(source, vars(module))
    vars(module).update(names)
    return module


def and_one(inner: Any) -> Any:
    return lambda: inner() + 1


def test_around_reaches_those_who_took_it_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    first = module_of("library_x.a", "def one():\n    return 1")
    second, other = module_of("library_x.b", taken=first.one), module_of("elsewhere", taken=first.one)
    for module in (first, second, other):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    Adaptation("library_x", "1").around(first, "one", and_one)
    assert (first.one(), second.taken(), other.taken()) == (2, 2, 2)


def test_what_does_not_fit_takes_all_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = module_of("library_y", "def one():\n    return 1")
    second = module_of("library_y.b", taken=first.one)

    class Kept:
        @functools.cached_property
        def two(self) -> int:
            return 2

        @property
        def three(self) -> int:
            return 3

        @staticmethod
        def four() -> int:
            return 4

    for module in (first, second):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    library = Adaptation("library_y", "7.1")
    found: list[Any] = []
    registry: dict[str, int] = {}

    def change(library: Adaptation, module: types.ModuleType) -> None:
        library.around(module, "one", and_one)
        library.around(vars(Kept)["two"], "func", lambda inner: lambda self: inner(self) + 1)
        library.around(Kept, "three", lambda inner: lambda self: inner(self) + 1)
        library.around(Kept, "four", and_one)
        library.put(module, "new", 1)
        registry["pjrt"] = 1
        library.undo_by(lambda: registry.pop("pjrt"))
        found.append((module.one(), second.taken(), Kept().two, Kept().three, Kept().four(), registry.copy()))

    def fail(library: Adaptation, module: types.ModuleType) -> None:
        library.around(module, "gone", and_one)

    first.__spec__ = second.__spec__ = ModuleSpec("library_y", None)
    library.after_import("library_y", change)
    assert found == [(2, 2, 3, 4, 5, {"pjrt": 1})]
    with pytest.warns(UserWarning, match=r"leaves library_y 7\.1 alone, as library_y isn't .*no attribute 'gone'"):
        library.after_import("library_y", fail)
    assert (first.one(), second.taken(), Kept().two, Kept().three, Kept().four()) == (1, 1, 2, 3, 4)
    assert registry == {}
    assert not hasattr(first, "new")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning is given once
        library.after_import("library_y", change)
        library.after_import("library_y", fail)
    assert len(found) == 1


def test_a_module_that_is_gone() -> None:
    assert has_module("importlib.resources.abc")
    assert not has_module("importlib.resources.of_old")
    assert not has_module("json.of_old.decoder")
    with pytest.warns(UserWarning, match=r"leaves json 2 alone, as json\.of_old isn't .*: there is no such module"):
        Adaptation("json", "2").after_import("json.of_old", lambda *_: None)


def a(x: int, y: int = 1, *, z: int = 2) -> None: ...


@pytest.mark.parametrize(
    ("outer", "fits"),
    [
        (lambda x, y=1, *, z=2: None, True),
        (lambda *arguments, **options: None, True),
        (lambda x, *arguments, **options: None, True),
        (lambda x, y=1, **options: None, True),
        (lambda x, y=1: None, False),  # no z
        (lambda x, **options: None, False),  # y may come by its place
        (lambda x, *arguments, z=2: None, False),  # y may come by its name
        (lambda x, y=2, *, z=2: None, False),  # another default
        (lambda y, *arguments, **options: None, False),  # another argument
        (lambda x, y=1, w=3, **options: None, False),
        (lambda: None, False),
    ],
)
def test_which_calls_reach_it(outer: Callable[..., None], fits: bool) -> None:
    if fits:
        check_calls(outer, a)
        return
    with pytest.raises(DoesNotFit, match=r"^a\(x: 'int', y: 'int' = 1, \*, z: 'int' = 2\) -> 'None' takes other argu"):
        check_calls(outer, a)
