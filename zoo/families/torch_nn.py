"""torch.nn's modules with all options of PyTorch's own tests, a few samples of one class in each model."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_flatten, tree_unflatten

from zoo.model import Absent, Built, seeded

SAMPLES = 6  # in one model


class Scaled(nn.Module):
    """A module whose floating inputs are multiplied by parameters, so that a step needs the gradients of inputs.

    For a loss it is the first input only, because a target may have to be a probability.
    """

    def __init__(self, module: nn.Module, arguments: Any) -> None:
        super().__init__()
        self.module = module
        leaves = [x for x in tree_flatten(arguments)[0] if isinstance(x, torch.Tensor) and x.is_floating_point()]
        self.scales = nn.ParameterList(
            nn.Parameter(torch.ones_like(x)) for x in (leaves[:1] if "Loss" in type(module).__name__ else leaves)
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = tree_flatten((args, kwargs))
        scales = iter(self.scales)
        for i, x in enumerate(leaves):
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                scale = next(scales, None)
                leaves[i] = x if scale is None else x * scale
        args, kwargs = tree_unflatten(leaves, tree)
        return self.module(*args, **kwargs)


class Samples(nn.Module):
    """Several modules, each called with its own arguments."""

    def __init__(self, modules: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, *samples: Any) -> Any:
        return [part(*args, **kwargs) for part, (args, kwargs) in zip(self.parts, samples, strict=True)]


def models() -> dict[str, Callable[[], Built]]:
    try:
        from torch.testing._internal.common_modules import module_db
    except ImportError as error:
        raise Absent(f"torch.testing._internal: {error}") from error
    found: dict[str, Callable[[], Built]] = {}
    for info in module_db:
        count = len(samples(info))
        for first in range(0, count, SAMPLES):
            name = info.formatted_name.removeprefix("nn_")
            found[name if count <= SAMPLES else f"{name}.{first // SAMPLES}"] = functools.partial(build, info, first)
    return found


@functools.cache
def samples(info: Any) -> list[Any]:
    seeded(0)
    try:
        return list(info.module_inputs_func(info, "cpu", torch.float32, requires_grad=False, training=True))
    except Exception:  # it needs a device, or a library
        return []


def build(info: Any, first: int) -> Built:
    parts, arguments = [], []
    samples.cache_clear()
    for sample in samples(info)[first : first + SAMPLES]:
        made, given = sample.constructor_input, sample.forward_input
        if given is None:
            continue
        module = copy.deepcopy(info.module_cls(*made.args, **made.kwargs))  # samples share buffers, which a move unties
        sample_arguments = (tuple(given.args), dict(given.kwargs))
        if any(is_lazy(parameter) for parameter in module.parameters()):
            module(*sample_arguments[0], **sample_arguments[1])
        parts.append(Scaled(module, sample_arguments))
        arguments.append(sample_arguments)
    return Built(Samples(parts), tuple(arguments))
