"""Whether a library that is to choose a device takes this one, and the line that tells so."""

from __future__ import annotations

import torch

from torch_pjrt import told

_told: set[str] = set()


def is_ours() -> bool:
    """Is this device PyTorch's accelerator? It is not where PyTorch finds a GPU of its own. Starts no client."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == "pjrt"


def is_available() -> bool:
    """Is it PyTorch's accelerator, and has it a plugin to run on?"""
    return is_ours() and bool(torch.pjrt.is_available())


def device() -> torch.device:
    """The current device."""
    return torch.device("pjrt", torch.pjrt.current_device())


def tell(library: str) -> None:
    """Says once of each library that it took the device: on stderr, unless the program has set up logging."""
    if library in _told:
        return
    _told.add(library)
    name = torch.pjrt.get_device_name()
    line = f"{library} runs on device pjrt ({name}); TORCH_PJRT_LIBRARIES=0 leaves the choice to it"
    told.tell("torch_pjrt.libraries", line)
