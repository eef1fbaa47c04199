"""A function of a library's, whose words for CUDA are made ours."""

from __future__ import annotations

import functools
import sys
import types

import pytest
import torch

from torch_pjrt.libraries.words import around, of_this_device


def test_every_place_that_names_cuda() -> None:
    def choose(index: int) -> tuple[object, ...]:
        """What cuda is called."""
        names = ["cuda", f"cuda:{index}"]
        kinds = torch.device("cuda:0").type in ("cuda", "xpu")
        return torch.cuda.__name__, names, kinds, "no cuda here", {"torch_cuda_seed": 1}, [s + "cuda" for s in "a"]

    held = choose
    of_this_device(choose)
    assert held(2) == (
        torch.pjrt.__name__,
        ["pjrt", "pjrt:2"],
        True,
        "no cuda here",
        {"torch_pjrt_seed": 1},
        ["apjrt"],
    )
    assert choose.__doc__ == "What cuda is called."


def test_what_holds_a_function() -> None:
    class Holder:
        @property
        def read(self) -> str:
            return "cuda"

        @functools.cached_property
        def kept(self) -> str:
            return "cuda"

        @staticmethod
        def static() -> str:
            return "cuda"

    @functools.lru_cache
    def remembered() -> str:
        return "cuda"

    for each in (Holder.read, Holder.__dict__["kept"], Holder.static, remembered):
        of_this_device(each)
    holder = Holder()
    assert [holder.read, holder.kept, holder.static(), remembered()] == ["pjrt"] * 4


def test_names_of_its_module() -> None:
    module = types.ModuleType("library")
    exec("def found():\n    return is_cuda_available()", vars(module))
    of_this_device(module.found, is_pjrt_available=lambda: "ours")
    assert module.found() == "ours"


def test_no_word() -> None:
    def silent() -> str:
        return "cpu"

    with pytest.raises(TypeError, match=r"test_no_word.*silent has no word about CUDA"):
        of_this_device(silent)


def test_around_reaches_those_who_took_it_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, other = (types.ModuleType(name) for name in ("library_x.a", "library_x.b", "elsewhere"))
    exec("def one():\n    return 1", vars(first))
    second.taken = other.taken = first.one  # type: ignore[attr-defined]
    for module in (first, second, other):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    around(first, "one", lambda inner: lambda: inner() + 1)
    assert (first.one(), second.taken(), other.taken()) == (2, 2, 2)
