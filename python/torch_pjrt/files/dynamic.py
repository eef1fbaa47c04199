"""Dynamic sizes: ``dynamic=`` names the dimensions, and the sizes to make programs for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

MOST_PROGRAMS = 64
MOST_LISTED = 1 << 16  # larger ranges don't count as lists of sizes
Dynamic = Mapping[str, Mapping[int, Any]]


@dataclass(frozen=True)
class Dim:
    argument: str
    dim: int
    name: str


def _named(argument: str, dim: int, given: Any, sizes: Mapping[str, Iterable[int]]) -> tuple[str, list[int]]:
    if isinstance(given, (str, torch.export.Dim)):
        name = given if isinstance(given, str) else given.__name__
        if hasattr(given, "root"):
            raise ValueError(
                f"dynamic: dimension {dim} of '{argument}' is derived from another, {name}; list its sizes"
            )
        if name in sizes:
            values = list(sizes[name])
            if isinstance(given, torch.export.Dim) and any(not given.min <= value <= given.max for value in values):
                raise ValueError(f"dynamic: '{name}' is from {given.min} to {given.max}, and its sizes are {values}")
            return name, values
        if isinstance(given, torch.export.Dim) and given.max < MOST_LISTED:
            return name, list(range(max(1, given.min), given.max + 1))
        raise ValueError(
            f"dynamic: dimension {dim} of '{argument}' is called '{name}', and no sizes are given for it. A "
            "program is made for each size, as XLA's plugins take none of open sizes: "
            f"sizes={{'{name}': range(1, 9)}}, or {{{dim}: ('{name}', [1, 8])}}"
        )
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return given[0], list(given[1])
    if isinstance(given, Iterable):
        return f"{argument}.{dim}", list(given)
    raise ValueError(f"dynamic: dimension {dim} of '{argument}' is {given!r}; give a name, a list of sizes or a range")


def combinations(
    dynamic: Dynamic, sizes: Mapping[str, Iterable[int]], tensors: list[tuple[str, torch.Tensor]]
) -> list[tuple[dict[str, int], list[torch.Tensor]]]:
    """Returns for each combination of sizes the sizes by name, and tensors like the examples with these sizes.

    Raises:
        ValueError: an argument, a dimension or a size doesn't exist, or there are too many programs.
    """
    examples = dict(tensors)
    dims: list[Dim] = []
    chosen: dict[str, list[int]] = {}
    for argument, by_dim in dynamic.items():
        if argument not in examples:
            raise ValueError(f"dynamic: there is no argument '{argument}'; there are {', '.join(map(repr, examples))}")
        for dim, given in by_dim.items():
            rank = examples[argument].dim()
            if not -rank <= dim < rank:
                raise ValueError(f"dynamic: '{argument}' has {rank} dimensions, and none is number {dim}")
            name, values = _named(argument, dim, given, sizes)
            if not values or any(type(value) is not int or value < 0 for value in values):
                raise ValueError(f"dynamic: the sizes of '{name}' are {values}; give non-negative integers")
            if chosen.setdefault(name, values) != values:
                raise ValueError(f"dynamic: '{name}' has the sizes {chosen[name]} and {values}")
            dims.append(Dim(argument, dim % rank, name))
    if unknown := set(sizes) - set(chosen):
        raise ValueError(f"sizes are given for '{sorted(unknown)[0]}', and dynamic has no dimension of that name")
    count = 1
    for values in chosen.values():
        count *= len(values)
    if count > MOST_PROGRAMS:
        raise ValueError(f"dynamic: {count} programs, one for each set of sizes; at most {MOST_PROGRAMS}")
    result = []
    for combination in itertools.product(*(dict.fromkeys(each) for each in chosen.values())):
        by_name = dict(zip(chosen, combination, strict=True))
        shaped = []
        for argument, example in tensors:
            shape = list(example.shape)
            for each in dims:
                if each.argument == argument:
                    shape[each.dim] = by_name[each.name]
            shaped.append(example if shape == list(example.shape) else _like(example, shape))
        result.append((by_name, shaped))
    return result


def _like(example: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Returns zeros with the example's order of dimensions in memory, and with more memory if the example has more."""
    order = sorted(range(len(shape)), key=example.stride, reverse=True)
    beside = example.untyped_storage().nbytes() > example.nbytes
    memory = torch.zeros(math.prod(shape) + beside, dtype=example.dtype, device=example.device)
    return memory.as_strided(shape, torch.empty_permuted(shape, order, device="meta").stride())
