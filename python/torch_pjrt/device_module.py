"""``torch.pjrt``: what ``torch.cuda`` is for CUDA."""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt import _C, _generators

# torch.utils.checkpoint saves the generators' state only of a device module that says so; ours need no client.
_initialized = True


def is_available() -> bool:
    """True if a PJRT plugin is installed and finds a device. Starts the client."""
    return device_count() > 0


def device_count() -> int:
    """Number of devices; 0 without a plugin. Starts the client."""
    try:
        return int(_C.device_count())
    except RuntimeError:
        return 0


def current_device() -> int:
    """Index of the device that ``device="pjrt"`` means in this thread."""
    return int(_C.current_device())


def _index(device: Any) -> int:
    if isinstance(device, int):
        return device
    if device is None:
        return current_device()
    device = torch.device(device)
    if device.type != "pjrt":
        raise ValueError(f"expected a pjrt device, got {device}")
    return current_device() if device.index is None else device.index


def set_device(device: Any) -> None:
    """Makes ``device`` (an index, ``"pjrt:1"`` or a ``torch.device``) the current one."""
    _C.set_device(_index(device))


class device:
    """Context manager that changes the current device: ``with torch.pjrt.device(1): ...``."""

    def __init__(self, device: Any) -> None:
        self.index = _index(device)

    def __enter__(self) -> None:
        self.before = current_device()
        _C.set_device(self.index)

    def __exit__(self, *exception: object) -> None:
        _C.set_device(self.before)


def synchronize(device: Any = None) -> None:
    """Runs everything that is pending and waits until the device is done."""
    _C.sync_all("torch.pjrt.synchronize")
    _C.synchronize(_index(device))


def get_device_name(device: Any = None) -> str:
    """The plugin's platform and kind of device, such as ``"cpu"``."""
    return str(_C.device_kinds()[_index(device)])


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes that ``torch.autocast("pjrt")`` may compute in."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """XLA has bfloat16 on every device."""
    return True


def is_initialized() -> bool:
    """True once a client runs."""
    return bool(_C.is_initialized())


def _is_in_bad_fork() -> bool:
    return False


manual_seed = _generators.manual_seed
manual_seed_all = _generators.manual_seed_all
seed = _generators.seed
initial_seed = _generators.initial_seed
get_rng_state = _generators.get_rng_state
set_rng_state = _generators.set_rng_state
default_generator = _generators.default_generator


def metrics() -> dict[str, Any]:
    """The same as ``torch_pjrt.metrics()``."""
    return dict(_C.metrics())


def reset_metrics() -> None:
    """The same as ``torch_pjrt.reset_metrics()``."""
    _C.reset_metrics()
