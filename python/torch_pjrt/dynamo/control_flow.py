"""Control flow and other calls of graphs in a captured graph (``cond``, ``scan``, …), as StableHLO has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.out_dtype import out_dtype_dense

from torch_pjrt import _C
from torch_pjrt.program.assertions import own_assertions
from torch_pjrt.program.loops import Call, looped, region, unrolled, while_loop, without_numbers

MOST_CALLS = 64  # of a loop that is unrolled: XLA compiles so many about as long as a loop, which runs a little slower
MOST_TURNS = 256  # of one that has to be


def cond(call: Call, predicate: Any, if_true: Any, if_false: Any, operands: Sequence[Any] = ()) -> list[Any]:
    """A branch; where it can't be one (it draws random numbers, say), both branches and a choice for each result."""
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
    """They have no effects, so nobody can tell. A check in one would fail where it isn't chosen."""
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
    """The loop, a short one unrolled, and one that can't be a loop (it draws random numbers, say): carries, then what
    each turn gave, stacked."""
    turns = xs[0].shape[0] if xs else 0
    if turns == 0:
        raise NotImplementedError("a scan of no turns")
    if turns * calls_in(combine) > MOST_CALLS:
        try:
            return looped(call, combine, init, xs, additional)
        except (NotImplementedError, RuntimeError):
            if turns > MOST_TURNS:
                raise
    return unrolled(call, combine, init, xs, additional)


def calls_in(module: fx.GraphModule) -> int:
    graphs = [inner.graph for inner in module.modules() if isinstance(inner, fx.GraphModule)]
    return sum(node.op == "call_function" for graph in graphs for node in graph.nodes)


def map_impl(call: Call, function: fx.GraphModule, xs: Sequence[Any], additional: Sequence[Any] = ()) -> list[Any]:
    """A scan that carries nothing."""
    return scan(call, function, (), xs, additional)


def invoke_subgraph(call: Call, region: Any, name: str, *operands: Any) -> list[Any]:
    """Of what ``rewrites.py`` doesn't see: the backward of a branch."""
    return list(call(region, *operands))


def hints_wrapper(call: Call, body: Any, operands: Sequence[Any], *_: Any, **hints: Any) -> list[Any]:
    """The hints are for other compilers."""
    return list(call(body, *operands))


def foreach_map(call: Call, function: Any, *operands: Any) -> list[Any]:
    return list(call(function, *operands))


def out_dtype(_: Call, operator: Any, dtype: torch.dtype, *operands: Any) -> torch.Tensor:
    result: torch.Tensor = out_dtype_dense(operator, dtype, *operands)
    return result


def with_effects(_: Call, token: torch.Tensor, operator: Any, *operands: Any, **named: Any) -> list[Any]:
    """A check of values, which a program makes an assertion. Tokens are the order of effects, and nothing else."""
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
