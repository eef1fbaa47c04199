"""Fourier transforms have the CPU's layout in memory, so code that views and flattens them works."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.each_way

DIMS = ((0,), (1,), (0, 1), (1, 0), (0, 2), (0, 1, 2), (2, 0, 1))


@pytest.mark.parametrize("name", ["rfftn", "irfftn", "hfftn", "ihfftn", "fftn", "ifftn"])
def test_strides(name: str) -> None:
    function = getattr(torch.fft, name)
    whole = torch.randn(5, 6, 7, dtype=torch.complex64 if name in ("irfftn", "hfftn") else torch.float32)
    for x in (whole, whole.transpose(0, 2), whole[:, ::2]):
        moved = whole.to("pjrt").as_strided(x.shape, x.stride())
        for dims in DIMS:
            result, expected = function(moved, dim=dims), function(x, dim=dims)
            assert result.stride() == expected.stride(), f"{dims} of strides {x.stride()}"
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_a_plane_can_be_flattened() -> None:
    x = torch.randn(4, 6)
    torch.testing.assert_close(torch.fft.rfft2(x.to("pjrt")).view(-1).cpu(), torch.fft.rfft2(x).view(-1))
