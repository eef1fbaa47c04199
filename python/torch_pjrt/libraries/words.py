"""What a library's function says of CUDA, said of this device."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch


def _ours(word: str) -> str:
    return word.replace("cuda", "pjrt").replace("CUDA", "PJRT")


def _said(constant: Any) -> Any:
    """A constant of code: names are ours, sentences stay as they are."""
    if isinstance(constant, str):
        return constant if " " in constant.strip() else _ours(constant)
    if isinstance(constant, tuple):
        return tuple(_said(each) for each in constant)
    if isinstance(constant, frozenset):
        return frozenset(_said(each) for each in constant)
    return _code(constant) if isinstance(constant, CodeType) else constant


def _code(code: CodeType) -> CodeType:
    return code.replace(
        co_names=tuple(_ours(name) for name in code.co_names), co_consts=tuple(_said(each) for each in code.co_consts)
    )


def of_this_device(function: Any, **globals_: Any) -> None:
    """Changes a function where it is, for whoever holds it: ``torch.cuda`` becomes ``torch.pjrt``, ``"cuda:0"``
    ``"pjrt:0"``, ``is_cuda_available`` ``is_pjrt_available``.

    Args:
        function: a function, or what holds one: a property, a static method, a cached property, a decorated function.
        globals_: what the names mean that its module doesn't have: ``is_pjrt_available=...``.

    Raises:
        TypeError: no word of it speaks of CUDA.
    """
    inner = getattr(function, "fget", None) or getattr(function, "func", None) or function
    while not isinstance(inner, FunctionType) or hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    code = _code(inner.__code__)
    if code == inner.__code__:
        raise TypeError(f"{inner.__module__}.{inner.__qualname__} has no word about CUDA")
    inner.__globals__.update(globals_)
    inner.__code__ = code


def or_out_of_memory(inner: Any) -> Any:
    """For ``around``: a test of exceptions that knows PyTorch's own, which this device raises, too."""
    return lambda exception: isinstance(exception, torch.OutOfMemoryError) or inner(exception)


def around(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Puts ``make(function)`` in the place of a function of a module or class, and of each module that has taken it by
    name."""
    inner = getattr(owner, name)
    outer = functools.wraps(inner)(make(inner))
    setattr(owner, name, outer)
    if isinstance(owner, ModuleType):
        for module in list(sys.modules.values()):
            for key, value in list(vars(module).items()) if isinstance(module, ModuleType) else ():
                if value is inner:
                    setattr(module, key, outer)
