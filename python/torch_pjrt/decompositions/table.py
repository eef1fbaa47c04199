"""The table of decompositions, by the op's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

DECOMPOSITIONS: dict[str, Callable[..., Any]] = {}
_aten = torch.library.Library("aten", "IMPL")
_own = torch.library.Library("torch_pjrt", "FRAGMENT")
_own.define("computed_once(Tensor self) -> Tensor")
_own.impl("computed_once", torch.clone, "CPU")
_own.impl("computed_once", torch.empty_like, "Meta")


def computed_once(x: Tensor) -> Tensor:
    """Returns x, computed once: XLA:CPU would compute it again for each read (``Emit::computed_once``)."""
    result: Tensor = torch.ops.torch_pjrt.computed_once(x)
    return result


def _set_meta(name: str, function: Callable[..., Any]) -> None:
    """Sets an overload's Meta kernel, and the one that Dynamo's traces call instead if PyTorch has it in Python."""
    _aten.impl(name, function, "Meta", allow_override=True)
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    if DispatchKey.Meta in op.py_kernels:
        op.py_kernels[DispatchKey.Meta] = function
        op._dispatch_cache.clear()


def decomposition(name: str, meta: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a decomposition for all overloads of an op.

    With ``meta``, it is the Meta kernel, too, for ops whose Meta kernel PyTorch lacks or has wrong."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        DECOMPOSITIONS[f"aten::{name}"] = function
        if meta:
            _set_meta(name, function)
        return function

    return add


def foreign(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a decomposition of another library's op, ``"library::op"``, which need not be imported."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        DECOMPOSITIONS[name] = function
        return function

    return add


def own_op(schema: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Defines an operator of this package that writes to its arguments and returns nothing: it is recorded as one node,
    and the function is its decomposition."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        name = schema.partition("(")[0]
        _own.define(schema)
        _own.impl(name, lambda *_args, **_kwargs: None, "Meta")
        DECOMPOSITIONS[f"torch_pjrt::{name}"] = function
        return function

    return add


def meta(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the Meta kernel of an overload whose own Meta kernel differs from its other kernels."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _set_meta(name, function)
        return function

    return add


def composition(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the device's kernel for overloads with a kernel for every backend that only some backends can run."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _aten.impl(name, function, "PrivateUse1")
        return function

    return add
