"""Tensors that outlive the capture they were made in: the function put them into a list, an attribute, a cache.

What depends on the function's arguments or state never had a value. Its class is changed to one that says so wherever a
value is asked for: what the engine could tell is only that data is not there. Other tensors (a mask in a cache) have a
value.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from torch_pjrt.errors import CaptureError


class Kept(torch.Tensor):
    """Has a shape, a dtype and a device, and nothing else."""

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
        reached: of tensors, which placeholders they depend on.
    """

    def __init__(self, reached: Callable[[list[torch.Tensor]], Sequence[bool]]) -> None:
        self.reached = reached
        self.tensors: list[Callable[[], torch.Tensor | None]] = []

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        self.tensors += [weakref.ref(tensor) for tensor in tensors]

    def without_value(self) -> list[torch.Tensor]:
        """Those that are alive and depend on placeholders. Some may be of use until the program is made."""
        alive = (ref() for ref in self.tensors)
        return [tensor for tensor in alive if tensor is not None and any(self.reached([tensor]))]

    def let_go(self) -> None:
        """The run is over, and no program is made of it."""
        mark(self.without_value())


def mark(tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        tensor.__class__ = Kept
