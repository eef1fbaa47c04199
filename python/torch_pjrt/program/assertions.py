"""Assertions of a traced function: what must hold of data, found out when the program runs (Note [Requirements])."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from torch_pjrt import _C


@contextmanager
def own_assertions() -> Iterator[None]:
    """What is asserted in this scope is not asserted outside of it: ``taken`` or ``tied`` takes it up.

    Raises:
        NotImplementedError: nobody has.
    """
    _C.begin_assertions()
    try:
        yield
        if _C.take_assertions() is not None:
            raise NotImplementedError("a check of values is not possible here")
    finally:
        _C.end_assertions()


def taken() -> list[torch.Tensor]:
    """A tensor that depends on all assertions of the scope, for a program to compute; none where there are none."""
    token = _C.take_assertions()
    return [] if token is None else [token]


def tied(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results of what is traced, of which the first depends on all assertions of the scope."""
    token = _C.take_assertions()
    if token is None:
        return list(results)
    if not results:
        raise NotImplementedError("a check of values in a function without results")
    return [_C.depending(results[0], token), *results[1:]]
