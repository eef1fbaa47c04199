"""Networks of bench/people, programs as people write them: the modules that they call, with their first arguments."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils._pytree import tree_map

from zoo.model import Built

CALLS = 6  # calls of outermost modules, after which a program is ended


class Enough(BaseException):
    """Raised to end a program whose modules have been seen."""


def models() -> dict[str, Callable[[], Built]]:
    bench = str(Path(__file__).resolve().parents[2] / "bench")
    if bench not in sys.path:
        sys.path.append(bench)
    import people

    names = people.names("@person", "@draws")
    return {f"{name}{'' if not i else f'.{i}'}": functools.partial(build, name, i) for name in names for i in range(2)}


def build(name: str, number: int) -> Built:
    """Returns the module that the program calls after `number` other ones.

    Raises:
        LookupError: the program calls no such module.
    """
    found = called(name)
    if number >= len(found):
        raise LookupError(f"the program {name} calls {len(found)} modules")
    return copy.deepcopy(found[number])


@functools.lru_cache(maxsize=2)
def called(name: str) -> list[Built]:
    import people

    found: dict[int, Built] = {}
    call, depth, calls = nn.Module.__call__, 0, 0

    def noted(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth, calls
        if depth == 0 and next(module.parameters(), None) is not None:
            calls += 1
            if calls > CALLS:
                raise Enough
            if id(module) not in found:
                plain = tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, (args, kwargs))
                found[id(module)] = copy.deepcopy(Built(module, *plain))
        depth += 1
        try:
            return call(module, *args, **kwargs)
        finally:
            depth -= 1

    with mock.patch.object(nn.Module, "__call__", noted), contextlib.suppress(Enough):
        people.program(name)("cpu")
    return list(found.values())
