"""Python loops over the elements and rows of tensors, as reference code has them."""

from __future__ import annotations

import pytest
import torch

import torch_pjrt


@pytest.mark.compiled
def test_a_view_is_not_written_back_to_itself() -> None:
    """`x[i] += y` calls x[i].__iadd__(y), then x.__setitem__(i, result)."""
    x, y = torch.zeros(8, device="pjrt"), torch.arange(8.0, device="pjrt")
    version = x._version
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    for i in range(8):
        x[i] += y[i]
    assert torch_pjrt.metrics()["ops_recorded"] == 8
    assert x._version == version + 16  # as on the CPU
    assert torch.equal(x, y)
    assert torch_pjrt.metrics()["graphs_compiled"] == 1


@pytest.mark.older_xla
def test_many_writes_compile_in_reasonable_time() -> None:
    """XLA:CPU's newer emitters take 25 ms for each write, its older ones 3."""
    x, y = torch.zeros(300, 4, device="pjrt"), torch.rand(300, 4)
    torch_pjrt.sync()
    torch_pjrt.reset_metrics()
    for i in range(300):
        x[i] = y[i].to("pjrt") * 2 + i
    torch.testing.assert_close(x.cpu(), y * 2 + torch.arange(300.0)[:, None])
    assert torch_pjrt.metrics()["compile_seconds"] < 6  # 1 on two quiet cores; 8 with the newer emitters
