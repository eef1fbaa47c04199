"""Control flow that a captured graph holds (``torch.cond``, ``scan``), as straight lines of calls.

``while_loop`` is not here: how often it turns is known by its data only, and it runs as PyTorch runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Call = Callable[..., Sequence[Any]]  # runs a graph on operands

MOST_TURNS = 256  # of a loop that is unrolled: compile time grows with it


def cond(call: Call, predicate: Any, if_true: Any, if_false: Any, operands: Sequence[Any] = ()) -> list[Any]:
    """Both branches, and a choice for each result: they have no effects, so nobody can tell."""
    if not isinstance(predicate, torch.Tensor):
        return list(call(if_true if predicate else if_false, *operands))
    chosen = []
    for yes, no in zip(call(if_true, *operands), call(if_false, *operands), strict=True):
        if isinstance(yes, torch.Tensor):
            chosen.append(torch.where(predicate, yes, no))
        elif yes == no:
            chosen.append(yes)
        else:
            raise NotImplementedError("the branches give different numbers")
    return chosen


def scan(call: Call, combine: Any, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any] = ()) -> list[Any]:
    """The loop unrolled: carries, then what each turn gave, stacked."""
    turns = xs[0].shape[0] if xs else 0
    if not 0 < turns <= MOST_TURNS:
        raise NotImplementedError(f"a scan of {turns} turns is not unrolled (at most {MOST_TURNS})")
    carry = list(init)
    given: list[Sequence[Any]] = []
    for turn in range(turns):
        results = call(combine, *carry, *(x.select(0, turn) for x in xs), *additional)
        carry = list(results[: len(init)])
        given.append(results[len(init) :])
    return [*carry, *(torch.stack(list(column)) for column in zip(*given, strict=True))]


LOWERINGS: dict[str, Callable[..., Any]] = {"cond": cond, "scan": scan}
