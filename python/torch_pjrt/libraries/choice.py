"""Decides whether a library that chooses a device takes this one, and reports it."""

from __future__ import annotations

import torch

from torch_pjrt import told

_told: set[str] = set()


def is_ours() -> bool:
    """Whether this device is PyTorch's accelerator, which it isn't if PyTorch finds a GPU. Starts no client."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == "pjrt"


def is_available() -> bool:
    """Whether this device is PyTorch's accelerator and has a plugin."""
    return is_ours() and bool(torch.pjrt.is_available())


def device() -> torch.device:
    """Returns the current device."""
    return torch.device("pjrt", torch.pjrt.current_device())


def tell(library: str) -> None:
    """Reports once per library that it uses the device: on stderr, unless the program has set up logging."""
    if library in _told:
        return
    _told.add(library)
    name = torch.pjrt.get_device_name()
    line = f"{library} runs on device pjrt ({name}); TORCH_PJRT_LIBRARIES=0 leaves the choice to it"
    told.tell("torch_pjrt.libraries", line)
