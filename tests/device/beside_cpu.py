"""A program on the device and on the CPU, compared in everything that a user can see of its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

DEVICE = "pjrt"


def same(device: torch.Tensor, host: torch.Tensor) -> None:
    """Asserts equal values, and equal metadata that views depend on."""
    assert device.dtype == host.dtype
    assert device.shape == host.shape
    assert device.stride() == host.stride()
    assert device.storage_offset() == host.storage_offset()
    assert device.is_contiguous() == host.is_contiguous()
    assert device.untyped_storage().nbytes() == host.untyped_storage().nbytes()
    assert device._version == host._version
    torch.testing.assert_close(device.cpu(), host, rtol=1e-5, atol=1e-5, equal_nan=True)


def both(make: Callable[[str], Any]) -> None:
    """Asserts that the program shows the same tensors on the device and on the CPU."""
    device, host = make(DEVICE), make("cpu")
    if isinstance(host, torch.Tensor):
        device, host = [device], [host]
    for d, h in zip(device, host, strict=True):
        if isinstance(h, torch.Tensor):
            same(d, h)
        else:
            assert d == h
