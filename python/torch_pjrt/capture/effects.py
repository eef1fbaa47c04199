"""Finds what a captured function changes in Python beside tensors, and the values that it takes from there.

A program does neither. A function that puts a tensor of the program somewhere is refused, other changes give a warning.
"""

from __future__ import annotations

import operator
import pickle
import random
import sys
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.capture.attributes import is_as_before
from torch_pjrt.capture.binding import bind, signature_of
from torch_pjrt.capture.finding import Found, Global, is_random, is_small_array, things_in
from torch_pjrt.errors import CaptureError

WHERE = "a variable or a container in it"
KEEPS = "the program keeps the value of the capture. Pass the value as an argument"


def _position(value: Any) -> Any:
    """Returns how far an iterator is; other values unchanged."""
    if isinstance(value, list):  # what an iterator goes through
        return id(value), len(value)
    if isinstance(value, tuple):
        return tuple(map(_position, value))
    if not isinstance(value, Iterator):
        return value
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        return () if frame is None else (frame.f_lasti, *map(_position, frame.f_locals.values()))
    if hasattr(value, "__dict__"):  # of a DataLoader
        return list(vars(value).items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 deprecates copies of itertools
        try:
            return _position(value.__reduce__())
        except TypeError:
            return operator.length_hint(value, -1)


def _state_of_random(thing: Any) -> Any:
    if hasattr(thing, "getstate"):
        return thing.getstate()
    return pickle.dumps(thing.get_state() if hasattr(thing, "get_state") else thing.bit_generator.state)


def _state(thing: Any) -> Any:
    if isinstance(thing, types.CellType):
        try:
            return [thing.cell_contents]
        except ValueError:  # not bound yet
            return []
    if isinstance(thing, Global):
        return [thing.entries[thing.key]] if thing.key in thing.entries else []
    if is_random(thing):
        return _state_of_random(thing)
    if is_small_array(thing):
        return thing.tobytes()
    if isinstance(thing, (type, torch.nn.Module)):
        return [(key, value) for key, value in vars(thing).items() if not key.startswith("_")]
    if isinstance(thing, Iterator):
        return _position(thing)
    return list(thing.items()) if isinstance(thing, dict) else list(thing)


def _restore(thing: Any, state: Any) -> None:
    if isinstance(thing, types.CellType) and state:
        thing.cell_contents = state[0]
    elif isinstance(thing, Global) and state:
        thing.entries[thing.key] = state[0]
    elif isinstance(thing, torch.nn.Module):
        vars(thing).update(state)
    elif isinstance(thing, (list, deque)):
        thing.clear()
        thing.extend(state)
    elif isinstance(thing, (dict, set)):
        thing.clear()
        thing.update(state)


def _tensors(state: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(state) if isinstance(leaf, torch.Tensor)]


class Effects:
    """Containers, variables, iterators and random generators outside of a function, before it is captured."""

    def __init__(self, found: Found) -> None:
        numpy = sys.modules.get("numpy")
        of_process = [("random", random), *([("numpy.random", numpy.random)] if numpy else [])]
        self.before = [(name, thing, _state(thing)) for name, thing in (*of_process, *found.things)]
        self.given: list[tuple[str, Any, Any]] = []

    def give(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Called before each run, with the arguments of this run."""
        bound = bind(signature_of(fn), args, kwargs)
        self.given = [(name, thing, _state(thing)) for name, thing in things_in(bound.arguments)]

    def restore(self) -> None:
        """Undoes changes of containers and variables, for a function that is not captured after all."""
        for _, thing, before in self.before:
            if not is_as_before(_state(thing), before):
                _restore(thing, before)

    def check(self, results: Sequence[Any] = ()) -> None:
        """Warns of what the function changed, or took a value from; an error in strict mode.

        Raises CaptureError if it put a tensor there that only a run of the program has. Restores what it changed then.
        An argument that is updated with results gives a warning, as a cache that is also returned.
        """
        try:
            self._check({id(result) for result in results})
        except CaptureError:
            self.restore()
            raise

    def _check(self, results: set[int]) -> None:
        reported: dict[str, str] = {}
        for i, (name, thing, before) in enumerate((*self.before, *self.given)):
            is_given = i >= len(self.before)
            now = _state(thing)
            if is_as_before(now, before):
                continue
            if is_random(thing):
                reported[name] = f"draws from '{name}': {KEEPS}, or draw it by PyTorch (torch.rand)"
            elif isinstance(thing, Iterator):
                reported[name] = f"takes a value of '{name}', an iterator: {KEEPS}"
            else:
                old = {id(tensor) for tensor in _tensors(before)}
                new = [tensor for tensor in _tensors(now) if id(tensor) not in old]
                is_returned = is_given and all(id(tensor) in results for tensor in new)
                if not is_returned and any(
                    tensor.device.type == "pjrt" and not _C.Trace.is_known(tensor) for tensor in new
                ):
                    raise CaptureError(
                        f"the captured function puts a tensor into '{name}', {WHERE}, and calls of the program don't "
                        "do it. Return the tensor, or write into one that was there before"
                    )
                reported[name] = (
                    f"changes '{name}', {WHERE}: that happens while it is captured, and calls of the program don't "
                    "do it. Return the value, or keep a tensor in a buffer that is updated in place"
                )
        for name in sorted(reported):
            message = f"the captured function {reported[name]}"
            if _C.strict():
                raise CaptureError(f"{message} (an error in strict mode)")
            warnings.warn(message, stacklevel=2)
