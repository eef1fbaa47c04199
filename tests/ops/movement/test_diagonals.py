"""Writes to diagonals: few elements of a large tensor, whose memory doesn't end where their grid does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytestmark = pytest.mark.each_way

SOURCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "diagonal": lambda x: x.diagonal(),
    "above": lambda x: x.diagonal(3),
    "below": lambda x: x.diagonal(-70),
    "of a batch": lambda x: x.reshape(2, -1, x.shape[1]).diagonal(0, 1, 2),
    "every third": lambda x: x.view(-1)[5::301],
}


@pytest.mark.parametrize("size", [(5, 5), (100, 100), (100, 101), (128, 90)], ids=str)
@pytest.mark.parametrize("place", SOURCES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64], ids=str)
def test_written_as_on_the_cpu(size: tuple[int, int], place: str, dtype: torch.dtype) -> None:
    if place == "of a batch" and size[0] % 2:
        size = (size[0] + 1, size[1])
    x = torch.arange(size[0] * size[1]).reshape(size).to(dtype)
    y = x.to("pjrt")
    for t in (x, y):
        places = SOURCES[place](t)
        places.copy_(torch.arange(places.numel(), device=t.device).sub(7).reshape(places.shape).to(dtype))
        SOURCES[place](t)[..., :1].fill_(1)
    assert torch.equal(y.cpu(), x)
