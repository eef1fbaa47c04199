"""Functions that check values; pytest rewrites ``assert`` in tests' own files."""

from __future__ import annotations

import torch


def is_positive(x: torch.Tensor) -> torch.Tensor:
    assert (x > 0).all(), "x is to be positive"
    return x.log()


def is_below(x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    assert (x < limit).all(), "too large"
    return torch.ones(2)


def falls_back(x: torch.Tensor) -> torch.Tensor:
    try:
        if (x < 0).any():
            raise ValueError("negative")
    except ValueError:
        return x * 0
    return x


def refuses_large(x: torch.Tensor) -> torch.Tensor:
    limit = 10
    if x.isnan().any() or (x > limit).any():
        raise IndexError(f"more than {limit} in a tensor of {x.numel()}")
    return x + 1


def holds(x: torch.Tensor) -> bool:
    return bool((x > 0).all())


def refuses_by_helper(x: torch.Tensor) -> torch.Tensor:
    if not holds(x):
        raise ValueError("a helper found no number above zero")
    if bool((x > 100).any()):
        raise ValueError("above a hundred")
    return x + 1


def is_any(values: list[torch.Tensor]) -> torch.Tensor:
    if not any(values):  # each may be false
        raise ValueError("none holds")
    return values[0]


def is_any_of_helpers(x: torch.Tensor) -> torch.Tensor:
    if not any(map(holds, [x, x + 2])):
        raise ValueError("none holds")
    return x
