"""The composites that this process knows. The state has one owner, ``known``, which other files query."""

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
        self.own: set[str] = set()  # names of the user's composites
        # Whether Dynamo captures for a backend that enables the composite. dynamo/optimizers.py sets it for Dynamo.
        self.captured_whole: Callable[[str], bool] = _never
        self._left: list[Callable[..., Any]] = []
        self._listeners: list[Listener] = []
        self._traced: ContextVar[bool] = ContextVar("traced", default=False)

    def leave(self, function: Callable[..., Any]) -> None:
        """Makes Dynamo leave calls of this function to AOTAutograd."""
        self._left.append(function)
        for listener in self._listeners:
            listener(function)

    def listen(self, listener: Listener) -> None:
        """Calls the listener for each function that was or will be left to AOTAutograd."""
        self._listeners.append(listener)
        for function in self._left:
            listener(function)

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Marks that AOTAutograd traces in this thread for a backend of this package."""
        token = self._traced.set(True)
        try:
            yield
        finally:
            self._traced.reset(token)

    def is_traced(self) -> bool:
        return self._traced.get()


known = Known()
