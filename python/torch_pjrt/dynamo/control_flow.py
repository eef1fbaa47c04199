"""Control flow and other higher-order calls of a captured graph (``cond``, ``scan``, …), lowered to StableHLO's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.out_dtype import out_dtype_dense

from torch_pjrt import _C
from torch_pjrt.program.assertions import own_assertions
from torch_pjrt.program.loops import Call, looped, region, unrolled, while_loop, without_numbers

MOST_CALLS = 64  # in an unrolled loop: it compiles in about the time of a loop, and runs a little faster
MOST_ITERATIONS = 256  # in a loop that must be unrolled


def cond(call: Call, predicate: Any, if_true: Any, if_false: Any, operands: Sequence[Any] = ()) -> list[Any]:
    """Records a branch or, if it can't be one (it draws random numbers, say), both branches and a selection."""
    if not isinstance(predicate, torch.Tensor):
        return list(call(if_true if predicate else if_false, *operands))
    try:
        called, tensors = without_numbers(call, operands)
        (yes, others), (no, same) = (region(called, graph, tensors) for graph in (if_true, if_false))
        if others != same:
            raise NotImplementedError("the branches give different numbers")
        chosen = iter(_C.if_else(predicate, tensors, yes, no))
        return [next(chosen) if other is None else other[0] for other in others]
    except (NotImplementedError, RuntimeError):
        return both(call, predicate, if_true, if_false, operands)


def both(call: Call, predicate: torch.Tensor, if_true: Any, if_false: Any, operands: Sequence[Any]) -> list[Any]:
    """Records both branches, which have no effects, and a selection. Runtime assertions apply to their own branch."""
    with own_assertions():
        results = call(if_true, *operands), call(if_false, *operands)
    chosen = []
    for yes, no in zip(*results, strict=True):
        if isinstance(yes, torch.Tensor):
            chosen.append(torch.where(predicate, yes, no))
        elif yes == no:
            chosen.append(yes)
        else:
            raise NotImplementedError("the branches give different numbers")
    return chosen


def scan(
    call: Call, combine: fx.GraphModule, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any] = ()
) -> list[Any]:
    """Records a loop; short ones, and those that can't be loops (they draw random numbers, say), are unrolled.

    Returns the carries, then the stacked results of each iteration."""
    iterations = xs[0].shape[0] if xs else 0
    if iterations == 0:
        raise NotImplementedError("a scan of no iterations")
    if iterations * calls_in(combine) > MOST_CALLS:
        try:
            return looped(call, combine, init, xs, additional)
        except (NotImplementedError, RuntimeError):
            if iterations > MOST_ITERATIONS:
                raise
    return unrolled(call, combine, init, xs, additional)


def calls_in(module: fx.GraphModule) -> int:
    graphs = [inner.graph for inner in module.modules() if isinstance(inner, fx.GraphModule)]
    return sum(node.op == "call_function" for graph in graphs for node in graph.nodes)


def map_impl(call: Call, function: fx.GraphModule, xs: Sequence[Any], additional: Sequence[Any] = ()) -> list[Any]:
    """Records a scan without carries."""
    return scan(call, function, (), xs, additional)


def invoke_subgraph(call: Call, region: Any, name: str, *operands: Any) -> list[Any]:
    """Records a region that ``rewrites.py`` doesn't see: the backward of a branch."""
    return list(call(region, *operands))


def hints_wrapper(call: Call, body: Any, operands: Sequence[Any], *_: Any, **hints: Any) -> list[Any]:
    """Records the body; the hints are for other compilers."""
    return list(call(body, *operands))


def foreach_map(call: Call, function: Any, *operands: Any) -> list[Any]:
    return list(call(function, *operands))


def out_dtype(_: Call, operator: Any, dtype: torch.dtype, *operands: Any) -> torch.Tensor:
    result: torch.Tensor = out_dtype_dense(operator, dtype, *operands)
    return result


def with_effects(_: Call, token: torch.Tensor, operator: Any, *operands: Any, **named: Any) -> list[Any]:
    """Records a check of values as a runtime assertion. Tokens represent only the order of effects."""
    if operator is not torch.ops.aten._linalg_check_errors.default:
        raise NotImplementedError(f"{operator} has effects, and runs in each call")
    operator(*operands, **named)
    return [token]


LOWERINGS: dict[str, Callable[..., Any]] = {
    "cond": cond,
    "while_loop": while_loop,
    "scan": scan,
    "map_impl": map_impl,
    "invoke_subgraph": invoke_subgraph,
    "hints_wrapper": hints_wrapper,
    "foreach_map": foreach_map,
    "out_dtype": out_dtype,
    "with_effects": with_effects,
}
