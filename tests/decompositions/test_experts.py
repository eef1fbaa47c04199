"""Products of a mixture's experts, by transformers' own ops."""

from __future__ import annotations

import pytest
import torch

import torch_pjrt

pytest.importorskip("transformers.integrations.moe")


def product(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return torch.ops.transformers.grouped_mm_fallback(rows, weights, ends)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ends", [[2, 2, 5, 7], [0, 3, 4, 5]], ids=["all rows", "some rows"])
def test_groups_of_rows(ends: list[int], dtype: torch.dtype) -> None:
    rows, weights, offsets = torch.randn(7, 4), torch.randn(4, 4, 3), torch.tensor(ends, dtype=torch.int32)

    def both(device: str) -> tuple[torch.Tensor, ...]:
        given = [each.to(device, dtype).requires_grad_() for each in (rows, weights)]
        result = product(*given, offsets.to(device))
        return (result, *torch.autograd.grad(result.float().square().sum(), given))

    for got, expected in zip(both("pjrt"), both("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.compiled
def test_within_a_program() -> None:
    given = torch.randn(7, 4), torch.randn(4, 4, 3), torch.tensor([2, 2, 5, 7], dtype=torch.int32)
    torch.testing.assert_close(torch_pjrt.jit(product, given)(*given), product(*given))
