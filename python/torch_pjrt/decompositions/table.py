"""The table of decompositions, by the op's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

DECOMPOSITIONS: dict[str, Callable[..., Any]] = {}
_aten = torch.library.Library("aten", "IMPL")


def decomposition(name: str, meta: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For all overloads of an op. ``meta``: PyTorch has no Meta kernel either, or a wrong one; this serves as one."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        DECOMPOSITIONS[f"aten::{name}"] = function
        if meta:
            _aten.impl(name, function, "Meta", allow_override=True)
        return function

    return add


def meta(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The Meta kernel of an overload whose own says something else than its kernels do."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _aten.impl(name, function, "Meta", allow_override=True)
        return function

    return add


def composition(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The device's kernel for overloads that have a kernel for every backend, which only some backends can run."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _aten.impl(name, function, "PrivateUse1")
        return function

    return add
