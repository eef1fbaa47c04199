"""Seeds and generator states of the devices, as in ``torch.cuda.random``."""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt import _C


def default_generator(device: Any = "pjrt") -> torch.Generator:
    """The generator that random ops on ``device`` draw from when none is given."""
    return _C.default_generator(_index(device))


def _index(device: Any) -> int:
    index = device if isinstance(device, int) else torch.device(device).index
    return int(_C.current_device()) if index is None else index


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator."""
    default_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device. Devices that no client has counted yet are one."""
    count = _C.device_count() if _C.is_initialized() else 1
    for index in range(count):
        default_generator(index).manual_seed(int(seed))


def seed() -> int:
    """Seeds the current device's generator from the system; gives the seed."""
    return default_generator().seed()


def initial_seed() -> int:
    """The current device's seed."""
    return default_generator().initial_seed()


def get_rng_state(device: Any = "pjrt") -> torch.Tensor:
    """The generator's state: a CPU uint8 tensor of 16 elements."""
    return default_generator(device).get_state()


def set_rng_state(state: torch.Tensor, device: Any = "pjrt") -> None:
    """Sets what ``get_rng_state`` gave."""
    default_generator(device).set_state(state)
