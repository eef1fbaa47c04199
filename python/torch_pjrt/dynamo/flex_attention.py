"""``flex_attention`` in a captured graph: PyTorch's dense formula, whose scores XLA fuses as far as it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import sdpa_dense, sdpa_dense_backward

from torch_pjrt.program.loops import Call


def as_function(call: Call, graph: Any) -> Callable[..., Any]:
    """Makes a function for vmap of a graph within the graph. It returns one result bare, and several as a list."""

    def function(*operands: Any) -> Any:
        results = call(graph, *operands)
        return results[0] if len(results) == 1 else list(results)

    return function


def with_function(call: Call, block_mask: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*block_mask[:-1], as_function(call, block_mask[-1]))


def forward(
    call: Call, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Any, block_mask: Any, *rest: Any
) -> Any:
    """Returns the output, the base-2 logarithms of the rows' sums, and the rows' largest scores."""
    mask = with_function(call, block_mask)
    return sdpa_dense(query, key, value, as_function(call, score_mod), mask, *rest)


def backward(call: Call, *args: Any) -> Any:
    """Returns the gradients of query, key, value and of the tensors that score_mod captures."""
    *tensors, score_mod, joint, block_mask = args[:10]
    *options, captured, masks = args[10:]
    # Placeholders don't show which gradients are wanted; unused gradients are not computed.
    captured = tuple(
        x.requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in captured
    )
    functions = as_function(call, score_mod), as_function(call, joint)
    with torch.no_grad():
        return sdpa_dense_backward(*tensors, *functions, with_function(call, block_mask), *options, captured, masks)


LOWERINGS: dict[str, Callable[..., Any]] = {"flex_attention": forward, "flex_attention_backward": backward}
