"""Tensors that outlive the capture they were made in: the function put them into a list, an attribute, a cache.

A tensor that depends on the function's arguments or state never had a value. Its class is changed to one that raises a
clear error wherever a value is needed; the engine could only report that there is no data. Other tensors, such as a
mask in a cache, have a value.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from torch_pjrt.errors import CaptureError


class Kept(torch.Tensor):
    """A tensor with a shape, a dtype and a device, but no value."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ != "__get__":
            raise CaptureError(
                "this tensor was made while a function was captured, and has no value: it was kept somewhere by the "
                "captured function. Return it instead"
            )
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Made:
    """The tensors that calls made during one run of a function.

    Args:
        reached: returns for a list of tensors on which placeholders they depend.
    """

    def __init__(self, reached: Callable[[list[torch.Tensor]], Sequence[bool]]) -> None:
        self.reached = reached
        self.tensors: list[Callable[[], torch.Tensor | None]] = []

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        self.tensors += [weakref.ref(tensor) for tensor in tensors]

    def without_value(self) -> list[torch.Tensor]:
        """Returns the living tensors that depend on placeholders; the compilation may still use some of them."""
        alive = (ref() for ref in self.tensors)
        return [tensor for tensor in alive if tensor is not None and any(self.reached([tensor]))]

    def let_go(self) -> None:
        """Called when the run is over and no program is made of it."""
        mark(self.without_value())


def mark(tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        tensor.__class__ = Kept
