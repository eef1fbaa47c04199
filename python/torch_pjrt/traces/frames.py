"""Records calls of subclasses, and the calls within each: the common base of a graph's recorder and a watcher."""

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

# Folders of PyTorch whose __torch_dispatch__ belongs to a mode, not to a subclass.
MODES = tuple(TORCH + part for part in ("_subclasses", "fx", "utils", "_functorch", "_library"))


def line_of_subclass() -> str:
    """Returns the line of the subclass's own code that makes a call, if that is Python."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code is not Frames.unroll.__code__:
        code = frame.f_code
        is_own = code.co_filename.startswith(TORCH) and not code.co_filename.startswith(MODES)
        if not code.co_filename.startswith((*LIBRARIES, "<")) or (is_own and code.co_name == "__torch_dispatch__"):
            return f"{os.path.basename(code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class Frames(TorchDispatchMode):
    """A mode above subclasses and below autograd. It makes a call again with itself on, and returns ``NotImplemented``
    for the repeated call, so that the dispatcher calls the subclass."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []  # the outermost events
        self.stack: list[Event] = []
        self.passing = False
        self.used: set[str] = set()
        self.types: dict[str, str] = {}
        self.count = 0
        self.follow: Callable[..., Any] | None = None  # runs a rule instead of an op

    def subclass(self, tensor: Any) -> Ref:
        raise NotImplementedError

    def plain(self, tensor: Any) -> Ref:
        raise NotImplementedError

    def line(self) -> str:
        raise NotImplementedError

    def claimed(self, op: Any, rule: Any, args: Any, kwargs: Any) -> Any:
        """Runs a rule, in a frame for the calls that it makes."""
        raise NotImplementedError

    def unseen(self) -> AbstractContextManager[None]:
        """Calls in the block are not recorded."""
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
        """Whether backward runs: nodes of a custom Function's backward lack the partitioner's tag."""
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
        """Runs a call in a frame. It isn't sent to ``__torch_dispatch__`` directly, because DTensor's calls the op
        again, and only the dispatcher chooses the right class."""
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
