"""Loops within a program: nodes whose body is traced once and runs in each iteration
(``engine/lower/control_flow.h``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.program.assertions import own_assertions, taken, tied

Call = Callable[..., Sequence[Any]]  # runs a graph on operands


def apply(function: Callable[..., Sequence[Any]], *operands: Any) -> Sequence[Any]:
    """Calls a graph that is a Python function."""
    return function(*operands)


def region(call: Call, graph: Any, operands: Sequence[torch.Tensor]) -> tuple[Any, list[Any]]:
    """Traces the graph as the body of a node. Returns it with the values of its results: None for tensors."""
    traced = _C.Region(operands)
    with own_assertions():
        results = call(graph, *traced.placeholders)
        traced.finish(tied([result for result in results if isinstance(result, torch.Tensor)]))
    return traced, [None if isinstance(result, torch.Tensor) else (result,) for result in results]


def all_tensors(carried: Sequence[Any]) -> list[torch.Tensor]:
    for value in carried:
        if not isinstance(value, torch.Tensor):
            raise NotImplementedError(f"a loop that carries a {type(value).__name__}")
    return list(carried)


def without_numbers(call: Call, operands: Sequence[Any]) -> tuple[Call, list[torch.Tensor]]:
    """Returns the tensors among ``operands``, which a node can take, and a Call on such tensors that inserts the other
    operands, mostly sizes, at their places."""

    def with_numbers(graph: Any, *tensors: Any) -> Sequence[Any]:
        rest = iter(tensors)
        return call(graph, *(next(rest) if isinstance(operand, torch.Tensor) else operand for operand in operands))

    return with_numbers, [operand for operand in operands if isinstance(operand, torch.Tensor)]


def while_loop(
    call: Call, condition: Any, body: Any, carried: Sequence[Any], additional: Sequence[Any] = ()
) -> list[Any]:
    call, operands = without_numbers(call, [*all_tensors(carried), *additional])
    (decides, _), (iteration, others) = (region(call, graph, operands) for graph in (condition, body))
    if any(other is not None for other in others):
        raise NotImplementedError("a loop that carries what is no tensor")
    return list(_C.while_loop(operands, len(carried), decides, iteration))


def looped(
    call: Call, combine: Any, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any], reverse: bool = False
) -> list[Any]:
    """Records ``torch.scan`` as a loop that carries the iteration, the carries, and the results of each iteration so
    far. Returns the last carries, then the stacked results. ``reverse`` runs from the last of ``xs`` to the first."""
    iterations, carries, inputs = xs[0].shape[0], len(init), len(xs)
    call, operands = without_numbers(call, [*all_tensors([*init, *(x.select(0, 0) for x in xs)]), *additional])
    shapes = _C.Region(operands)
    with own_assertions():
        given = all_tensors(call(combine, *shapes.placeholders))[carries:]
        taken()
    stacks = [x.new_zeros((iterations, *x.shape)) for x in given]
    iteration = torch.zeros(1, dtype=torch.int64, device=xs[0].device)

    def condition(iteration: torch.Tensor, *_: torch.Tensor) -> list[torch.Tensor]:
        return [iteration < iterations]

    def body(iteration: torch.Tensor, *rest: torch.Tensor) -> list[torch.Tensor]:
        carry, rest = rest[:carries], rest[carries:]
        stacked, rest = rest[: len(stacks)], rest[len(stacks) :]
        place = iterations - 1 - iteration if reverse else iteration
        now = [x.index_select(0, place).squeeze(0) for x in rest[:inputs]]
        results = call(combine, *carry, *now, *rest[inputs:])
        put = [s.index_copy(0, place, r.unsqueeze(0)) for s, r in zip(stacked, results[carries:], strict=True)]
        return [iteration + 1, *results[:carries], *put]

    return while_loop(apply, condition, body, [iteration, *init, *stacks], [*xs, *operands[carries + inputs :]])[1:]


def unrolled(
    call: Call, combine: Any, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any], reverse: bool = False
) -> list[Any]:
    """Records the loop unrolled, with the results of ``looped``."""
    carry, given = list(init), []
    iterations = range(xs[0].shape[0])
    for iteration in reversed(iterations) if reverse else iterations:
        results = call(combine, *carry, *(x.select(0, iteration) for x in xs), *additional)
        carry = list(results[: len(init)])
        given.append(results[len(init) :])
    columns = zip(*(reversed(given) if reverse else given), strict=True)
    return [*carry, *(torch.stack(column) for column in columns)]
