"""Calls of subclasses, and what is called within each: what a graph's recorder and a watcher have in common."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_pjrt.program.stack import LIBRARIES, TORCH
from torch_pjrt.program.subclasses import is_subclass
from torch_pjrt.traces.events import Event, Ref
from torch_pjrt.traces.source import place
from torch_pjrt.traces.types import number_of, type_of

# Whose __torch_dispatch__ is no subclass's.
MODES = tuple(TORCH + part for part in ("_subclasses", "fx", "utils", "_functorch", "_library"))


def line_of_subclass() -> str:
    """The line of the subclass's own code that makes a call, where that is Python."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code is not Frames.unroll.__code__:
        code = frame.f_code
        is_own = code.co_filename.startswith(TORCH) and not code.co_filename.startswith(MODES)
        if not code.co_filename.startswith((*LIBRARIES, "<")) or (is_own and code.co_name == "__torch_dispatch__"):
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class Frames(TorchDispatchMode):
    """Stands above subclasses and below autograd. A call is made again with the mode on, and the repeat passed on
    (``NotImplemented``), so that the dispatcher asks the subclass."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []  # those that are in no other
        self.stack: list[Event] = []
        self.passing = False
        self.used: set[str] = set()
        self.types: dict[str, str] = {}
        self.count = 0
        self.follow: Callable[..., Any] | None = None  # a rule's call in the place of an op's

    def subclass(self, tensor: Any) -> Ref:
        raise NotImplementedError

    def plain(self, tensor: Any) -> Ref:
        raise NotImplementedError

    def line(self) -> str:
        raise NotImplementedError

    def claimed(self, op: Any, rule: Any, args: Any, kwargs: Any) -> Any:
        """A rule's call: what it calls is in its frame."""
        raise NotImplementedError

    def unseen(self) -> AbstractContextManager[None]:
        """What is called here is looked at and thrown away."""
        raise NotImplementedError

    def fresh(self, hint: str) -> str:
        name, n = hint, 0
        while name in self.used:
            n += 1
            name = f"{hint}_{n}"
        self.used.add(name)
        return name

    def fresh_subclass(self) -> str:
        self.count += 1
        return self.fresh(f"t{self.count - 1}")

    def ref(self, x: Any) -> Any:
        if is_subclass(x):
            return self.subclass(x)
        if isinstance(x, torch.Tensor):
            return self.plain(x)
        return number_of(x)

    def in_backward(self) -> bool:
        """A custom Function's backward loses the partitioner's tag."""
        return bool(torch._C._current_graph_task_id() != -1)

    def emit(self, event: Event) -> Event:
        event.parent = self.stack[-1] if self.stack else None
        if event.parent is None:
            self.events.append(event)
        return event

    def begin(self, target: Any, args: Any, kwargs: Any) -> Event:
        event = Event("call", target, None, None, None, self.line(), self.in_backward())
        event.args, event.kwargs = pytree.tree_map(self.ref, (tuple(args), dict(kwargs)))
        given = pytree.arg_tree_leaves(*args, **kwargs)
        refs = pytree.tree_leaves((event.args, event.kwargs), is_leaf=lambda x: isinstance(x, Ref))
        for x, ref in zip(given, refs, strict=True):
            if isinstance(ref, Ref):
                event.types[ref.name] = type_of(x)
        return self.emit(event)

    def unroll(self, event: Event, func: Any, args: Any, kwargs: Any, operands: list[Any]) -> Any:
        """Not by ``__torch_dispatch__`` itself: DTensor's calls the op again, and the dispatcher knows better."""
        order: list[type] = []
        for x in operands:
            if type(x) not in order:
                order.insert(next((i for i, c in enumerate(order) if issubclass(type(x), c)), len(order)), type(x))
        event.handler = order[0].__name__
        self.passing = True
        try:
            with self:
                return func(*args, **kwargs)
        except TypeError as error:
            if "Multiple dispatch failed" not in str(error):
                raise
            names = " and ".join(cls.__name__ for cls in order)
            raise TypeError(
                f"{event.describe()}{' in the backward' if event.backward else ''}, at {place(event.stack)}: {names} "
                "can't do this (its __torch_dispatch__ gave NotImplemented). Handle the op there, or unwrap the tensor "
                "before"
            ) from None
        finally:
            self.passing = False
