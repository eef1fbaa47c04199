"""The networks of tests and benchmarks, at the size for tests."""

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
