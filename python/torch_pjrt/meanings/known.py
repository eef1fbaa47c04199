"""What is known of composites in this process. It has one owner, ``known``; the other files ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Listener = Callable[[Callable[..., Any]], object]


def _never(name: str) -> bool:
    return False


class Known:
    def __init__(self) -> None:
        self.own: set[str] = set()  # names that the user's groups have
        # Does Dynamo capture for a backend that is asked for this composite? dynamo/optimizers.py says; Dynamo reads it
        self.captured_whole: Callable[[str], bool] = _never
        self._left: list[Callable[..., Any]] = []
        self._listeners: list[Listener] = []
        self._traced: ContextVar[bool] = ContextVar("traced", default=False)

    def leave(self, function: Callable[..., Any]) -> None:
        """Dynamo is to leave calls of this function to AOTAutograd."""
        self._left.append(function)
        for listener in self._listeners:
            listener(function)

    def listen(self, listener: Listener) -> None:
        """It is told of each function that was left so, and of each that will be."""
        self._listeners.append(listener)
        for function in self._left:
            listener(function)

    @contextmanager
    def traced(self) -> Iterator[None]:
        """In this thread AOTAutograd traces for a backend of this package."""
        token = self._traced.set(True)
        try:
            yield
        finally:
            self._traced.reset(token)

    def is_traced(self) -> bool:
        return self._traced.get()


known = Known()
