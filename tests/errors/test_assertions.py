"""Assertions of the user about data: _assert_async."""

from __future__ import annotations

import pytest
import torch

import torch_pjrt

DEVICE = "pjrt"


@pytest.mark.each_way
def test_an_assertion_cuts_no_graph_and_raises_at_the_next_read() -> None:
    torch_pjrt.reset_metrics()
    x = torch.ones(3, device=DEVICE)
    for message in ("", "positive"):
        torch._assert_async((x > 0).all(), message)
        x = x * 2
    torch._assert_async(torch.ones((), device=DEVICE))
    assert torch_pjrt.metrics()["syncs"] == 0
    assert x.tolist() == [4, 4, 4]
    assert torch_pjrt.metrics()["syncs"] == 1
    for message in ("", "positive"):
        torch._assert_async(torch.zeros((), device=DEVICE), message)  # not part of the value that is read
        y = x + 1
        with pytest.raises(RuntimeError, match=message or "Assertion is failed"):
            y.tolist()
        assert y.tolist() == [5, 5, 5]
    torch._assert_async(torch.zeros((), device=DEVICE))
    with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value, but got zero"):
        (x + 1).tolist()
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value is ambiguous"):
        torch._assert_async(torch.ones(2, device=DEVICE))
    assert not torch_pjrt.metrics()["host_fallbacks"]
