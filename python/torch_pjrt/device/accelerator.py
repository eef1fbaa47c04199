"""Keeps PyTorch's accelerator if PyTorch has another one besides this device (Note [Two accelerators])."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torch_pjrt import _C


def keep() -> None:
    """Keeps PyTorch's accelerator if it has a device. Must be called before this device is named.

    A PyTorch with CUDA may run without a GPU; its device_count() starts the driver only if necessary.
    """
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and torch.get_device_module(accelerator).device_count() > 0:
        _C.keep_accelerator()


@contextmanager
def ours() -> Iterator[None]:
    """Makes ``torch.accelerator`` refer to this device in the block."""
    before = _C.set_accelerator_here(True)
    try:
        yield
    finally:
        _C.set_accelerator_here(before)
