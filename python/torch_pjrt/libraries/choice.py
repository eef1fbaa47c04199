"""Decides whether a library takes this device, reports it, and keeps random states in its checkpoints."""

from __future__ import annotations

from pathlib import Path

import torch

from torch_pjrt import messages

_announced: set[str] = set()


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


def announce(library: str) -> None:
    """Reports once per library that it uses the device: on stderr, unless the program has set up logging."""
    if library in _announced:
        return
    _announced.add(library)
    name = torch.pjrt.get_device_name()
    line = f"{library} runs on device pjrt ({name}); TORCH_PJRT_AUTOSELECT=0 leaves the choice to it"
    messages.inform("torch_pjrt.libraries", line)


def _random_states(folder: str | Path, process: int) -> Path:
    return Path(folder) / f"pjrt_random_states_{process}.pt"


def save_random_states(folder: str | Path, process: int) -> None:
    """Writes the devices' random states into a checkpoint, beside the library's own files."""
    torch.save(torch.pjrt.get_rng_state_all(), _random_states(folder, process))


def load_random_states(folder: str | Path, process: int) -> None:
    """Restores what ``save_random_states`` wrote; reports a checkpoint of another device, which has none."""
    file = _random_states(folder, process)
    if not file.exists():
        messages.inform("torch_pjrt.libraries", f"{folder} has no random numbers of pjrt: a run differs from that one")
        return
    for index, state in enumerate(torch.load(file, weights_only=True)[: torch.pjrt.device_count()]):
        torch.pjrt.set_rng_state(state, index)
