"""Samples of ops, enlarged to a given size."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch
from torch.utils import _pytree as pytree


class LeftOut(Exception):
    """Raised if there is nothing to measure, with the reason."""


def tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def larger(tree: Any, size: int) -> Any:
    """Returns the sample with about ``size`` elements in the largest tensor: each dimension above 1 is repeated.

    Shapes still match each other, and values are still valid for the op.
    """
    given = [x for x in tensors(tree) if x.numel()]
    most = max(given, key=torch.Tensor.numel)
    wide = sum(n > 1 for n in most.shape)
    if wide == 0 or most.numel() >= size:
        return tree
    times = max(1, round((size / most.numel()) ** (1 / wide)))

    def repeated(x: torch.Tensor) -> torch.Tensor:
        plain = x.detach().repeat([times if n > 1 else 1 for n in x.shape]) if x.dim() else x.detach().clone()
        return plain.requires_grad_(x.requires_grad)

    return pytree.tree_map_only(torch.Tensor, repeated, tree)


def chosen_sample(op: Any, dtype: torch.dtype, size: int, needs_grad: bool) -> tuple[Any, Any, Any]:
    """Returns the first sample that can be made so large."""
    for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=needs_grad), 12):
        tree = (sample.input, sample.args, sample.kwargs)
        if not any(x.numel() > 1 for x in tensors(tree)):
            continue
        try:
            made: tuple[Any, Any, Any] = larger(tree, size)
            result = op.op(made[0], *made[1], **made[2])
        except Exception:
            continue
        if max((x.numel() for x in tensors((made, result))), default=0) >= size / 4:
            return made
    raise LeftOut("no sample of it can be made so large")
