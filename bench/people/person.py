"""A program as a person would write it: a function of a device that returns numbers to compare."""

from __future__ import annotations

from collections.abc import Callable

import torch

Values = "list[float] | torch.Tensor"
PROGRAMS: dict[str, Callable[[str], object]] = {}
# Programs that draw on the device (dropout, samples): their numbers differ and are not compared.
DRAWS: set[str] = set()


def person(function: Callable[[str], object]) -> Callable[[str], object]:
    PROGRAMS[function.__name__] = function
    return function


def draws(function: Callable[[str], object]) -> Callable[[str], object]:
    DRAWS.add(function.__name__)
    return person(function)


def flat(values: object) -> list[float]:
    if isinstance(values, torch.Tensor):
        return [float(v) for v in values.detach().double().cpu().flatten().tolist()]
    if isinstance(values, (list, tuple)):
        return [number for value in values for number in flat(value)]
    return [float(values)]  # type: ignore[arg-type]
