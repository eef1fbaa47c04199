"""Evaluates the symbolic sizes of a captured graph for one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import sympy
import torch
from torch import fx

Size: TypeAlias = int | torch.SymInt


def size_now(size: Size) -> int:
    """Returns a size in the call that the graph was captured for. Raises ValueError if it depends on data."""
    if isinstance(size, int):
        return size
    hint = size.node.hint
    if hint is None:
        raise ValueError(f"the size {size} depends on data")
    return int(hint)


def numbers_of(value: Any) -> Iterator[Size]:
    """Yields the sizes and strides of a tensor, or a number itself."""
    if isinstance(value, torch.Tensor):
        yield from (*value.shape, *value.stride())
    elif isinstance(value, (int, torch.SymInt)):
        yield value


class Symbols:
    """The values of symbols in a call, including those that depend on data, as far as arguments determine them. Other
    symbols have their captured values if the call's sizes are those of the capture."""

    def __init__(self, graph: fx.Graph, arguments: Sequence[Any]) -> None:
        """``arguments``: tensors with concrete sizes, and numbers."""
        self.known: dict[sympy.Basic, sympy.Basic] = {}
        self.as_captured = True
        for node, argument in zip(graph.find_nodes(op="placeholder"), arguments, strict=True):
            for size, now in zip(numbers_of(node.meta.get("val")), numbers_of(argument), strict=False):
                if isinstance(size, torch.SymInt):
                    self.known[size.node.expr] = sympy.Integer(int(now))
                    self.as_captured &= size.node.hint in (None, now)

    def value(self, size: Size) -> int:
        """Returns the size in this call. Raises ValueError if only a run can determine it."""
        if isinstance(size, int):
            return size
        if self.as_captured and size.node.hint is not None:
            return size_now(size)
        expression = size.node.expr
        if expression not in self.known:
            self.known[expression] = expression.xreplace(self.known)
        now = self.known[expression]
        if not now.is_Integer:
            raise ValueError(f"the size {size} depends on data")
        return int(now)

    def layout(self, tensor: torch.Tensor) -> tuple[list[int], list[int]]:
        return [self.value(s) for s in tensor.shape], [self.value(s) for s in tensor.stride()]
