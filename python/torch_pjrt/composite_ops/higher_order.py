"""A group while AOTAutograd traces: a higher-order operator, which stays in the graph with its function as a graph.

It is only used while a backend of this package traces; for other backends a group is its function's calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.functional_utils import has_data_mutation
from torch._higher_order_ops.base_hop import BaseHOP, FunctionWithNoFreeVars
from torch._higher_order_ops.utils import materialize_as_graph

from torch_pjrt.composite_ops.group import Group, is_differentiable, refuse_write

Function = Callable[..., Sequence[torch.Tensor]]


class _Differentiable(torch.autograd.Function):
    """A call whose backward is a call of the operator, too; its function is traced before, outside of autograd."""

    @staticmethod
    def forward(ctx: Any, group: Group, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch._C._AutoDispatchBelowAutograd():
            results = tuple(call(group.name, group.attributes, group.function, tensors))
        ctx.group, ctx.tensors = group, tensors
        ctx.differentiable = [is_differentiable(result) for result in results]
        ctx.mark_non_differentiable(*(r for r, is_one in zip(results, ctx.differentiable, strict=True) if not is_one))
        return results

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        needed = ctx.needs_input_grad[1:]
        given = [grad for grad, is_one in zip(grads, ctx.differentiable, strict=True) if is_one]
        group, tensors = ctx.group.backward(needed, ctx.differentiable), (*ctx.tensors, *given)
        graph = materialize_as_graph(alone(group.function), tensors)
        found = iter(call(group.name, group.attributes, graph, tensors))
        return None, *(next(found) if wanted else None for wanted in needed)


class Composite(BaseHOP):
    """``composite(graph, *tensors, name=..., attributes=...)``; attributes are lines of ``key = text``."""

    def __init__(self) -> None:
        super().__init__("pjrt_composite")

    def _call_Autograd(self, subgraph: Function, *operands: Any, name: str, attributes: str) -> Any:
        return _Differentiable.apply(Group(name, attributes_from(attributes), subgraph), *operands)

    def _call_Functionalize(self, ctx: Any, subgraph: Function, *operands: Any, name: str, attributes: str) -> Any:
        def checked(*given: torch.Tensor) -> Sequence[torch.Tensor]:
            results = subgraph(*given)
            for i, tensor in enumerate(given):
                if has_data_mutation(tensor):
                    refuse_write(name, f"argument number {i}")
            return results

        with ctx.redispatch_to_next():
            functional = FunctionWithNoFreeVars(ctx.functionalize(checked))
            results = self(functional, *ctx.unwrap_tensors(operands), name=name, attributes=attributes)
        return ctx.wrap_tensors(results)


operator = Composite()


def attributes_from(text: str) -> dict[str, str]:
    return dict(line.split(" = ", 1) for line in text.splitlines())


def alone(function: Function) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Wraps the function so that results share no memory with arguments or each other, as the operator requires."""

    def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        taken = {tensor.untyped_storage()._cdata for tensor in tensors}
        results = []
        for result in function(*tensors):
            results.append(result.clone() if result.untyped_storage()._cdata in taken else result)
            taken.add(results[-1].untyped_storage()._cdata)
        return tuple(results)

    return run


def call(
    name: str, attributes: Mapping[str, str], function: Function, tensors: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    lines = "\n".join(f"{key} = {value}" for key, value in attributes.items())
    subgraph = function if isinstance(function, torch.fx.GraphModule) else FunctionWithNoFreeVars(alone(function))
    results: Sequence[torch.Tensor] = operator(subgraph, *tensors, name=name, attributes=lines)
    return results
