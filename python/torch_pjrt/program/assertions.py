"""Runtime assertions of a traced function: conditions on data that a run checks (Note [Runtime assertions])."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from torch_pjrt import _C


@contextmanager
def own_assertions() -> Iterator[None]:
    """Collects the assertions made in the block, which the block must handle by ``taken`` or ``tied``.

    Raises:
        NotImplementedError: the block made assertions and didn't handle them.
    """
    _C.begin_assertions()
    try:
        yield
        if _C.take_assertions() is not None:
            raise NotImplementedError("a check of values is not possible here")
    finally:
        _C.end_assertions()


def taken() -> list[torch.Tensor]:
    """Returns a tensor that depends on all assertions of the block, for a program to compute, if there are any."""
    token = _C.take_assertions()
    return [] if token is None else [token]


def tied(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns the results, of which the first then depends on all assertions of the block."""
    token = _C.take_assertions()
    if token is None:
        return list(results)
    if not results:
        raise NotImplementedError("a check of values in a function without results")
    return [_C.depending(results[0], token), *results[1:]]
