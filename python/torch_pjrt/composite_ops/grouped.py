"""Calls of groups: a node on the device, and a higher-order operator (``higher_order.py``) while AOTAutograd traces for
``torch.compile``, which is lowered to that node. Elsewhere the function is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import _get_current_function_mode
from torch.utils import _pytree as pytree

from torch_pjrt.composite_ops.asked import is_asked
from torch_pjrt.composite_ops.group import Group, Tensors, is_differentiable
from torch_pjrt.composite_ops.known import known


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Group, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = group.record(tensors)
        ctx.group = group
        ctx.differentiable = [is_differentiable(result) for result in results]
        ctx.save_for_backward(*tensors)
        ctx.mark_non_differentiable(*(r for r, is_one in zip(results, ctx.differentiable, strict=True) if not is_one))
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        needed = ctx.needs_input_grad[1:]
        given = [grad for grad, is_one in zip(grads, ctx.differentiable, strict=True) if is_one]
        found = iter(apply(ctx.group.backward(needed, ctx.differentiable), [*ctx.saved_tensors, *given]))
        return None, *(next(found) if wanted else None for wanted in needed)


def apply(group: Group, tensors: Tensors) -> Tensors:
    """Returns the group's results, as a composite if the program can have one."""
    if known.is_traced():
        from torch_pjrt.composite_ops import higher_order  # imported late: only torch.compile needs what it imports

        return higher_order.call(group.name, group.attributes, group.function, tensors)
    if not is_asked(group.name):  # e.g. a backward outside of the block
        return group.function(*tensors)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        results: tuple[torch.Tensor, ...] = _Differentiable.apply(group, *tensors)
        return results
    return group.record(tensors)


def can_be(tensors: Tensors) -> bool:
    """Whether a group can take these tensors. Others (functorch's, other devices') are passed to the function."""
    if not tensors or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    if known.is_traced():
        return True
    return all(
        tensor.device.type == "pjrt" and type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in tensors
    )


def grouped(
    name: str,
    attributes: Mapping[str, str],
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    called: Sequence[str],
) -> Any:
    """Calls ``function(*args, **kwargs)`` as a group of the tensors among the arguments."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    if _get_current_function_mode() is not None:  # a capture's mode replaces tensors in calls
        leaves = [leaf.view_as(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i] for i in places]
    if not can_be(tensors):
        return function(*args, **kwargs)
    results: list[Any] = []
    result_spec: Any = None

    def of_tensors(*given: torch.Tensor) -> Tensors:
        nonlocal results, result_spec
        values = list(leaves)
        for i, tensor in zip(places, given, strict=True):
            values[i] = tensor
        all_args, all_kwargs = pytree.tree_unflatten(values, spec)
        results, result_spec = pytree.tree_flatten(function(*all_args, **all_kwargs))
        tensors = [result for result in results if isinstance(result, torch.Tensor)]
        if not tensors:
            what = type(results[0]).__name__ if results else "nothing"
            raise TypeError(f"composite '{name}' gives no tensors, but {what}: a composite is a function of tensors")
        return tensors

    group = Group(name, attributes, of_tensors)
    group.arguments = called
    found = iter(apply(group, tensors))
    given = [next(found) if isinstance(result, torch.Tensor) else result for result in results]
    return pytree.tree_unflatten(given, result_spec)
