"""A group while AOTAutograd traces: a higher order operator, which stays in the graph with its function as a graph.

Only where a backend of this package traces: for others a group is the calls that it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._higher_order_ops.base_hop import BaseHOP, BaseHOPFunction, FunctionWithNoFreeVars

from torch_pjrt.meanings.asked import SUFFIX


class _Derivative(BaseHOPFunction):
    """PyTorch's own gives the backward the name of the forward."""

    @staticmethod
    def forward(ctx: Any, hop: Any, subgraph: Any, kwargs: Any, *operands: Any) -> Any:
        results = BaseHOPFunction.forward(ctx, hop, subgraph, kwargs, *operands)
        ctx.kwargs = {**kwargs, "name": kwargs["name"] + SUFFIX}
        return results


class Composite(BaseHOP):
    """``composite(graph, *tensors, name=..., attributes=...)``; of the attributes a line each, ``key = text``."""

    def __init__(self) -> None:
        super().__init__("pjrt_composite")

    def _call_Autograd(self, subgraph: Any, *operands: Any, **kwargs: Any) -> Any:
        return _Derivative.apply(self, subgraph, kwargs, *operands)


operator = Composite()


def attributes_from(text: str) -> dict[str, str]:
    return dict(line.split(" = ", 1) for line in text.splitlines())


def call(
    name: str,
    attributes: Mapping[str, str],
    function: Callable[..., Sequence[torch.Tensor]],
    tensors: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor]:
    lines = "\n".join(f"{key} = {value}" for key, value in attributes.items())
    results: Sequence[torch.Tensor] = operator(
        FunctionWithNoFreeVars(lambda *given: tuple(function(*given))), *tensors, name=name, attributes=lines
    )
    return results
