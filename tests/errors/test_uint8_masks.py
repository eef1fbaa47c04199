"""Indexing by uint8 masks warns as often as on the CPU, although both the shape function and the host's kernel warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch


def warned(function: Callable[[torch.Tensor], object], mask: torch.Tensor) -> int:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(mask)
    return sum("indexing with dtype torch.uint8" in str(warning.message) for warning in caught)


def write(mask: torch.Tensor) -> None:
    torch.arange(6.0, device=mask.device)[mask] = torch.tensor([1.0, 2, 3, 4], device=mask.device)


def backward(mask: torch.Tensor) -> None:
    torch.arange(6.0, device=mask.device).requires_grad_()[mask].sum().backward()


@pytest.mark.filterwarnings("ignore:.*runs on the host")
@pytest.mark.parametrize(
    "function",
    [
        lambda mask: torch.arange(6.0, device=mask.device)[mask],
        lambda mask: torch.arange(36.0, device=mask.device).reshape(6, 6)[mask, mask],
        write,
        backward,
    ],
    ids=["read", "two masks", "write", "backward"],
)
def test_as_often_as_on_the_cpu(function: Callable[[torch.Tensor], object]) -> None:
    mask = torch.tensor([1, 0, 1, 0, 1, 1], dtype=torch.uint8)
    expected = warned(function, mask)
    assert expected > 0
    for _ in range(2):  # the first call of a kind, and a known one
        assert warned(function, mask.to("pjrt")) == expected
