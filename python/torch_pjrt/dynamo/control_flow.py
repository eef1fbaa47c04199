"""Control flow that a captured graph holds (``torch.cond``, ``while_loop``, ``scan``, regions), as StableHLO has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.loops import Call, all_tensors, looped, region, unrolled, while_loop

MOST_TURNS = 256  # of a loop that is unrolled: compile time grows with it


def cond(call: Call, predicate: Any, if_true: Any, if_false: Any, operands: Sequence[Any] = ()) -> list[Any]:
    """A branch; where it can't be one (it draws random numbers, say), both branches and a choice for each result."""
    if not isinstance(predicate, torch.Tensor):
        return list(call(if_true if predicate else if_false, *operands))
    try:
        tensors = all_tensors(operands)
        (yes, others), (no, same) = (region(call, graph, tensors) for graph in (if_true, if_false))
        if others != same:
            raise NotImplementedError("the branches give different numbers")
        chosen = iter(_C.if_else(predicate, tensors, yes, no))
        return [next(chosen) if other is None else other[0] for other in others]
    except (NotImplementedError, RuntimeError):
        return both(call, predicate, if_true, if_false, operands)


def both(call: Call, predicate: torch.Tensor, if_true: Any, if_false: Any, operands: Sequence[Any]) -> list[Any]:
    """They have no effects, so nobody can tell."""
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
    """The loop unrolled, a long one as a loop: carries, then what each turn gave, stacked."""
    turns = xs[0].shape[0] if xs else 0
    if turns == 0:
        raise NotImplementedError("a scan of no turns")
    return (looped if turns > MOST_TURNS else unrolled)(call, combine, init, xs, additional)


def invoke_subgraph(call: Call, region: Any, name: str, *operands: Any) -> list[Any]:
    """Of what ``rewrites.py`` doesn't see: the backward of a branch."""
    return list(call(region, *operands))


LOWERINGS: dict[str, Callable[..., Any]] = {
    "cond": cond,
    "while_loop": while_loop,
    "scan": scan,
    "invoke_subgraph": invoke_subgraph,
}
