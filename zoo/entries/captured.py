"""``torch_pjrt.jit`` and ``torch_pjrt.compile_step``, on CPU tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import torch_pjrt
from zoo.entries import Prepared
from zoo.model import Built
from zoo.reference import step_of


def of_tensors(made: Built) -> tuple[Any, list[torch.Tensor]]:
    """Returns the call of the module as a function of the tensors among its arguments, and these."""
    leaves, tree = tree_flatten((made.args, made.kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    module = made.module

    def call(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        args, kwargs = tree_unflatten(filled, tree)
        return module(*args, **kwargs)

    return call, [leaves[i] for i in places]


def prepare(made: Built, what: str, how: str) -> Prepared:
    if how == "jit":
        call, tensors = of_tensors(made)
        jitted = torch_pjrt.jit(call, tensors, modules=[made.module])
        return Prepared(lambda: jitted(*tensors), made)
    step = torch_pjrt.compile_step(step_of(made), keep_grads=True)
    return Prepared(lambda: step(*made.args, **made.kwargs), made)
