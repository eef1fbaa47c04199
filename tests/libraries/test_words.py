"""A function of a library's, whose words for CUDA are made ours."""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest
import torch

from torch_pjrt.libraries.words import DoesNotFit, of_this_device


def test_every_place_that_names_cuda() -> None:
    def choose(index: int) -> tuple[object, ...]:
        """Names cuda in a sentence."""
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
    assert choose.__doc__ == "Names cuda in a sentence."


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


def test_what_is_done_is_taken_back() -> None:
    module = types.ModuleType("library")
    exec("def found():\n    return is_cuda_available(), 'cuda'", vars(module))
    undo = of_this_device(module.found, is_pjrt_available=lambda: "ours")
    assert module.found() == ("ours", "pjrt")
    undo()
    vars(module)["is_cuda_available"] = lambda: "theirs"
    assert module.found() == ("theirs", "cuda")
    assert "is_pjrt_available" not in vars(module)


def in_a_module(source: str) -> Any:
    module = types.ModuleType("library")
    exec(f"import torch\ndef found():\n    {source}", vars(module))
    return module.found


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("return 'cpu'", r"^found has no word about CUDA$"),
        ("return is_cuda_there()", r"^found would speak of is_pjrt_there, which isn't there$"),
        ("return [torch.cuda.is_new(i) for i in 'a']", r"^found would speak of torch.pjrt.is_new, which isn't there$"),
        ("from torch.cuda import nccl", r"^found would speak of import torch.pjrt, which isn't there$"),
    ],
)
def test_what_does_not_fit_stays_as_it_is(source: str, message: str) -> None:
    function = in_a_module(source)
    before = function.__code__
    with pytest.raises(DoesNotFit, match=message):
        of_this_device(function)
    assert function.__code__ is before


def test_parts_of_cuda_may_lack() -> None:
    of_this_device(in_a_module("return torch.cuda.amp.GradScaler if False else 'cuda'"))
