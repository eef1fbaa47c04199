"""Control flow that a captured graph holds (``torch.cond``, ``while_loop``, ``scan``), as StableHLO has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_pjrt import _C

Call = Callable[..., Sequence[Any]]  # runs a graph on operands

MOST_TURNS = 256  # of a loop that is unrolled: compile time grows with it


def region(call: Call, graph: Any, operands: Sequence[torch.Tensor]) -> tuple[Any, list[Any]]:
    """The graph, traced to be held by a node; and what it gives: None in a tensor's place, else its value."""
    traced = _C.Region(operands)
    results = call(graph, *traced.placeholders)
    traced.finish([result for result in results if isinstance(result, torch.Tensor)])
    return traced, [None if isinstance(result, torch.Tensor) else (result,) for result in results]


def all_tensors(operands: Sequence[Any]) -> list[torch.Tensor]:
    for operand in operands:
        if not isinstance(operand, torch.Tensor):
            raise NotImplementedError(f"a loop or branch that is given a {type(operand).__name__}")
    return list(operands)


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


def while_loop(
    call: Call, condition: Any, body: Any, carried: Sequence[Any], additional: Sequence[Any] = ()
) -> list[Any]:
    operands = all_tensors([*carried, *additional])
    (decides, _), (turn, others) = (region(call, graph, operands) for graph in (condition, body))
    if any(other is not None for other in others):
        raise NotImplementedError("a loop that carries what is no tensor")
    return list(_C.while_loop(operands, len(carried), decides, turn))


def scan(call: Call, combine: Any, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any] = ()) -> list[Any]:
    """The loop unrolled, a long one as a loop: carries, then what each turn gave, stacked."""
    turns = xs[0].shape[0] if xs else 0
    if turns == 0:
        raise NotImplementedError("a scan of no turns")
    if turns > MOST_TURNS:
        return looped(call, combine, init, xs, additional)
    carry = list(init)
    given: list[Sequence[Any]] = []
    for turn in range(turns):
        results = call(combine, *carry, *(x.select(0, turn) for x in xs), *additional)
        carry = list(results[: len(init)])
        given.append(results[len(init) :])
    return [*carry, *(torch.stack(list(column)) for column in zip(*given, strict=True))]


def looped(call: Call, combine: Any, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any]) -> list[Any]:
    """The scan as a loop that carries its turn, the carries, and what the turns have given so far."""
    turns, carries, inputs = xs[0].shape[0], len(init), len(xs)
    shapes = _C.Region(all_tensors([*init, *(x.select(0, 0) for x in xs), *additional]))
    given = all_tensors(call(combine, *shapes.placeholders))[carries:]
    stacks = [x.new_zeros((turns, *x.shape)) for x in given]
    turn = torch.zeros(1, dtype=torch.int64, device=xs[0].device)

    def condition(turn: torch.Tensor, *_: torch.Tensor) -> list[torch.Tensor]:
        return [turn < turns]

    def body(turn: torch.Tensor, *rest: torch.Tensor) -> list[torch.Tensor]:
        carry, rest = rest[:carries], rest[carries:]
        stacked, rest = rest[: len(stacks)], rest[len(stacks) :]
        now = [x.index_select(0, turn).squeeze(0) for x in rest[:inputs]]
        results = call(combine, *carry, *now, *rest[inputs:])
        put = [s.index_copy(0, turn, r.unsqueeze(0)) for s, r in zip(stacked, results[carries:], strict=True)]
        return [turn + 1, *results[:carries], *put]

    def run(function: Callable[..., Sequence[Any]], *operands: Any) -> Sequence[Any]:
        return function(*operands)

    return while_loop(run, condition, body, [turn, *init, *stacks], [*xs, *additional])[1:]


LOWERINGS: dict[str, Callable[..., Any]] = {"cond": cond, "while_loop": while_loop, "scan": scan}
