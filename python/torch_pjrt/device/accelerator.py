"""PyTorch's accelerator, where it has one of its own beside this device (Note [Two accelerators])."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torch_pjrt import _C


def keep() -> None:
    """To be called before this device has a name.

    A PyTorch with CUDA may run where there is no GPU. Its device_count() doesn't start the driver if it need not.
    """
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and torch.get_device_module(accelerator).device_count() > 0:
        _C.keep_accelerator()


@contextmanager
def ours() -> Iterator[None]:
    """``torch.accelerator`` speaks of this device."""
    before = _C.set_accelerator_here(True)
    try:
        yield
    finally:
        _C.set_accelerator_here(before)
