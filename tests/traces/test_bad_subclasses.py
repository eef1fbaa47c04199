"""Subclasses whose flatten and unflatten don't match: the error names the problem."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import torch_pjrt


class Wrapper(torch.Tensor):
    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    def __init__(self, inner: torch.Tensor) -> None: ...

    def __repr__(self) -> str:  # type: ignore[override]
        return type(self).__name__

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = pytree.tree_map_only(Wrapper, lambda x: x.inner, (args, kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


class Lies(Wrapper):
    def __tensor_flatten__(self) -> Any:
        return ["absent"], None


class NamesNumbers(Wrapper):
    def __tensor_flatten__(self) -> Any:
        return ["shape"], None


class OtherClass(Wrapper):
    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Wrapper(inner["inner"])


class Fails(Wrapper):
    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["x"])


MESSAGES = {
    Lies: r"Lies.__tensor_flatten__ names an attribute that the tensor has not \(.*'absent'\): leave out",
    NamesNumbers: r"NamesNumbers.__tensor_flatten__ names 'shape', which is a Size: it names attributes that hold",
    OtherClass: r"OtherClass.__tensor_unflatten__ gives a Wrapper, and has to give a OtherClass again",
    Fails: r"Fails.__tensor_unflatten__ fails on what __tensor_flatten__ gave \(inner, context None\): KeyError: 'x'",
}


@pytest.mark.parametrize("cls", MESSAGES)
def test_captured(cls: Any) -> None:
    with pytest.raises(TypeError, match=MESSAGES[cls]):
        torch_pjrt.jit(lambda x: x * 2, [cls(torch.ones(2))])
    with pytest.raises(TypeError, match=MESSAGES[cls]):
        torch_pjrt.compile_step(lambda x: x * 2)(cls(torch.ones(2)))


def test_argument_of_a_compiled_function() -> None:
    """Dynamo itself reports the other classes, and its error names the user's line."""
    with pytest.raises(Exception, match=r"argument x: " + MESSAGES[OtherClass]):
        torch.compile(lambda x: x * 2, backend="pjrt")(OtherClass(torch.ones(2)))


@pytest.mark.parametrize("cls", [OtherClass, Fails])
def test_compiled(cls: Any) -> None:
    with pytest.raises(Exception, match=r"the result of .*test_bad_subclasses.py:\d+: " + MESSAGES[cls]):
        torch.compile(lambda x: cls(x) * 2, backend="pjrt")(torch.ones(2))


class Empty(Wrapper):
    """A wrapper without tensors; results of its ops are plain."""

    def __tensor_flatten__(self) -> Any:
        return [], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(torch.empty(size))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return torch.full(args[0].shape, 7.0)


def test_without_inner_tensors() -> None:
    """Dynamo's own error of torch.compile names the class and the line."""
    x = Empty(torch.ones(2))
    for call in (torch_pjrt.jit(lambda x: x * 2 + 1, [x]), torch_pjrt.compile_step(lambda x: x * 2 + 1)):
        assert call(x).tolist() == [8, 8]
    with pytest.raises(TypeError, match=r"a Empty, whose __tensor_flatten__ names no tensor: torch\.compile can't"):
        torch_pjrt.trace(lambda x: x * 2, x)
    with pytest.raises(Exception, match=r"Found: Empty(.|\n)*test_bad_subclasses\.py"):
        torch.compile(lambda x: x * 2, backend="pjrt")(x)
