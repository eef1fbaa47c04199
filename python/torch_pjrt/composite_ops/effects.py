"""Moves the effects of a function, writes to arguments and dropout, out of its group.

A group returns written values as additional results, and drops by masks that are operands. A replacement of the group,
or a second computation for a backward, thus has equal results and no effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_pjrt import _C
from torch_pjrt.composite_ops.group import Tensors
from torch_pjrt.composite_ops.grouped import can_be, grouped

# A trace has the first op, which decomposes into the second on the device.
DROPOUT = (torch.ops.aten.dropout.default, torch.ops.aten.native_dropout.default)


class _Dropout(TorchDispatchMode):
    """Applies dropout with these masks; without masks it drops nothing, and records which masks are needed."""

    def __init__(self, masks: Iterable[torch.Tensor] | None = None) -> None:
        super().__init__()
        self.masks = None if masks is None else iter(masks)
        self.needed: list[tuple[torch.Size, float]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in DROPOUT:
            return func(*args, **(kwargs or {}))
        x, p, is_training = args
        if is_training is False or p == 0:
            return func(*args)
        if self.masks is not None:
            mask = next(self.masks)
        else:
            self.needed.append((x.shape, p))
            mask = torch.ones_like(x, dtype=torch.bool)
        dropped = x * mask * (1 / (1 - p) if p < 1 else 0)
        return dropped if func is torch.ops.aten.dropout.default else (dropped, mask)


def masks_for(function: Callable[..., Any], args: Any, kwargs: Any, device: torch.device) -> list[torch.Tensor]:
    """Draws the masks of the function's dropouts."""
    with _Dropout() as mode, torch.no_grad():
        function(*args, **kwargs)
    drop = torch.ops.aten.native_dropout.default
    return [drop(torch.ones(shape, device=device), p, True)[1] for shape, p in mode.needed]


def grouped_apart(
    name: str,
    attributes: Mapping[str, str],
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    called: Sequence[str],
    *,
    written: Tensors = (),
    drops: bool = False,
) -> Any:
    """Calls a function as ``grouped`` does, with its effects outside of the group.

    The function writes to the arguments ``written``, whose new values are additional results of the group. With
    ``drops``, its masks are operands after its tensors."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not can_be(tensors):
        return function(*args, **kwargs)
    places = [i for i, leaf in enumerate(leaves) if any(leaf is one for one in written)]
    masks = masks_for(function, args, kwargs, tensors[0].device) if drops else []
    if masks and "operands" in attributes:
        names = ["dropout_mask"] if len(masks) == 1 else [f"dropout_mask.{i}" for i in range(len(masks))]
        attributes = {**attributes, "operands": _C.longer(attributes["operands"], names)}

    def pure(args: Any, kwargs: Any, masks: Tensors) -> tuple[Any, list[torch.Tensor]]:
        values, spec = pytree.tree_flatten((args, kwargs))
        for i in places:
            values[i] = values[i].detach().clone()
        args, kwargs = pytree.tree_unflatten(values, spec)
        with _Dropout(masks) if masks else nullcontext():
            results = function(*args, **kwargs)
        return results, [values[i] for i in places]

    given = [leaf.detach().clone() if i in places else leaf for i, leaf in enumerate(leaves)]
    args, kwargs = pytree.tree_unflatten(given, spec)
    results, new = grouped(name, attributes, pure, (args, kwargs, masks), {}, called)
    with torch.no_grad():
        for i, value in zip(places, new, strict=True):
            leaves[i].copy_(value)
    return results
