"""A model of the zoo: a name, and a function that builds a module with example arguments."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import importlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map

from zoo.libraries import define_missing_operators

FAMILIES = ("catalogue", "torch_nn", "networks", "graphs", "transformers", "timm", "torchvision", "diffusers")


def seeded(number: int = 1) -> None:
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


class Absent(Exception):
    """Raised if a model's library can't be imported."""


@dataclasses.dataclass
class Built:
    """A module and the arguments of one call."""

    module: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Model:
    """One row of the table."""

    name: str  # "family/name"
    build: Callable[[], Built]

    def built(self, dtype: torch.dtype = torch.float32) -> Built:
        """Returns the module with weights that are a function of its name, without dropout, in training mode.

        Normal noise is added to all parameters: initial zeros and ones would hide whether they are used.
        """
        seeded(0)
        made = self.build()
        without_dropout(made.module)
        with torch.no_grad():
            for parameter in made.module.parameters():
                if parameter.is_floating_point() and not is_lazy(parameter):
                    parameter.add_(torch.randn_like(parameter), alpha=0.03)
        made.module.train()
        if dtype != torch.float32:
            made = Built(made.module.to(dtype), *cast((made.args, made.kwargs), dtype))
        return made


def cast(tree: Any, dtype: torch.dtype) -> Any:
    """Returns a copy of the tree with its floating-point tensors in another dtype."""

    def leaf(value: Any) -> Any:
        is_floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.detach().to(dtype, copy=True) if is_floating else value

    return tree_map(leaf, tree)


def without_dropout(module: nn.Module) -> None:
    """Sets every dropout probability to zero, so that a training step can be compared."""
    for part in module.modules():
        for name, value in vars(part).items():
            if (
                isinstance(value, float)
                and 0 < value < 1
                and ("drop" in name or (name == "p" and "Drop" in repr(type(part))))
            ):
                setattr(part, name, 0.0)


@functools.cache
def family(name: str) -> dict[str, Model]:
    """Returns the models of a family, by their full names.

    Raises:
        Absent: the library of the models can't be imported.
    """
    define_missing_operators()
    module = importlib.import_module(f"zoo.families.{name}")
    return {f"{name}/{key}": Model(f"{name}/{key}", build) for key, build in module.models().items()}


def model(name: str) -> Model:
    return family(name.partition("/")[0])[name]


def matching(pattern: str) -> Iterator[tuple[str, str | None]]:
    """Yields (name, None) of each model whose name contains or matches the pattern; (family, reason) if absent."""
    head, slash, _ = pattern.partition("/")
    for name in FAMILIES:
        if slash and not fnmatch.fnmatch(name, f"*{head}"):
            continue  # its library may take long to import
        try:
            names = list(family(name))
        except Absent as reason:
            yield name, str(reason)
            continue
        for each in names:
            if pattern in each or fnmatch.fnmatch(each, pattern):
                yield each, None
