"""torch.isin: numbers on either side, NaN, and no host."""

from __future__ import annotations

import math

import pytest
import torch

import torch_pjrt

pytestmark = pytest.mark.each_way

GIVEN = {
    "few": torch.tensor([1, 3]),
    "none": torch.tensor([]),
    "a number": 2,
    "many": torch.arange(0, 400, 3),
    "NaN and infinity": torch.tensor([math.nan, math.inf, 1.0, math.nan]),
    "beyond float32": torch.tensor([2**24 + 1]),
}


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.sampled(2)
def test_isin(name: str, invert: bool) -> None:
    given = GIVEN[name]
    sought = [torch.randint(0, 9, (4, 3)), torch.tensor([]), torch.tensor(3), torch.tensor([1.0, math.nan, math.inf])]
    sought += [torch.tensor([2**24, 2**24 + 1]), 2, 2**24]  # type: ignore[list-item]
    torch_pjrt.reset_metrics()
    for x in sought:
        if not isinstance(x, torch.Tensor) and not isinstance(given, torch.Tensor):
            continue
        device_x, device_given = (y.to("pjrt") if isinstance(y, torch.Tensor) else y for y in (x, given))
        result = torch.isin(device_x, device_given, invert=invert)
        assert result.device.type == "pjrt"
        torch.testing.assert_close(result.cpu(), torch.isin(x, given, invert=invert))
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
