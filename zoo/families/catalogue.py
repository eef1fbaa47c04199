"""The networks that tests and benchmarks run, at the size of tests."""

from __future__ import annotations

import functools
from collections.abc import Callable

from models.catalogue import CATALOGUE, case
from zoo.model import Built


def models() -> dict[str, Callable[[], Built]]:
    return {name: functools.partial(build, name) for name in CATALOGUE}


def build(name: str) -> Built:
    made = case(name, small=True)
    return Built(made.model, made.inputs)
