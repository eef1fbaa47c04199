"""Replaces CUDA by this device in the code of a library's function."""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch


class DoesNotFit(Exception):
    """Raised if a library's function isn't the one that is known here."""


def _ours(word: str) -> str:
    return word.replace("cuda", "pjrt").replace("CUDA", "PJRT")


def _said(constant: Any) -> Any:
    """Returns a constant of code with names replaced; sentences are unchanged."""
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


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_part_of_cuda(name: str) -> bool:
    """Whether it is a submodule such as ``torch.cuda.amp``, which code for older versions of PyTorch uses."""
    return isinstance(getattr(torch.cuda, name, None), ModuleType)


def _unknown(before: CodeType, after: CodeType, known: set[str]) -> Iterator[str]:
    """Yields names in ``after`` that neither its module nor ``torch.pjrt`` has, and renamed imports."""
    for old, new in zip(_codes(before), _codes(after), strict=True):
        path = ""
        for was, now in zip(dis.get_instructions(old), dis.get_instructions(new), strict=True):
            kind, name = now.opname, str(now.argval)
            path = f"{path}.{name}" if kind in ("LOAD_ATTR", "LOAD_METHOD") else name if kind == "LOAD_GLOBAL" else ""
            if path == f"torch.pjrt.{name}" and not hasattr(torch.pjrt, name) and not _is_part_of_cuda(name):
                yield path
            elif was.argval != now.argval and kind == "LOAD_GLOBAL" and name not in known:
                yield name
            elif was.argval != now.argval and kind.startswith("IMPORT_"):
                yield f"import {name}"


def of_this_device(function: Any, **globals_: Any) -> Callable[[], None]:
    """Changes a function in place, for all its holders: ``torch.cuda`` becomes ``torch.pjrt``, ``"cuda:0"`` becomes
    ``"pjrt:0"``, ``is_cuda_available`` becomes ``is_pjrt_available``.

    Args:
        function: a function, or its holder: a property, a static method, a cached property, a decorated function.
        globals_: values of names that its module doesn't have: ``is_pjrt_available=...``.

    Returns:
        A function that reverts the change.

    Raises:
        DoesNotFit: no word in the function names CUDA, or a new name would not exist. The function is unchanged then.
    """
    inner = getattr(function, "fget", None) or getattr(function, "func", None) or function
    while not isinstance(inner, FunctionType) or hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    before, module = inner.__code__, inner.__globals__
    after = _code(before)
    if after == before:
        raise DoesNotFit(f"{inner.__qualname__} has no word about CUDA")
    if unknown := list(_unknown(before, after, module.keys() | globals_.keys() | vars(builtins).keys())):
        raise DoesNotFit(f"{inner.__qualname__} would speak of {', '.join(unknown)}, which isn't there")
    new = [name for name in globals_ if name not in module]
    module.update(globals_)
    inner.__code__ = after

    def undo() -> None:
        inner.__code__ = before
        for name in new:
            module.pop(name, None)

    return undo


def or_out_of_memory(inner: Any) -> Any:
    """Returns a test for ``Adaptation.around`` that accepts PyTorch's exception, too, which this device raises."""
    return lambda exception: isinstance(exception, torch.OutOfMemoryError) or inner(exception)
