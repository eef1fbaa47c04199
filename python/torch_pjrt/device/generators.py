"""Seeds and generator states of the devices, as in ``torch.cuda.random``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.device.streams import _device


def _check_not_captured() -> None:
    if _C.tracing():
        from torch_pjrt.errors import CaptureError

        raise CaptureError(
            "the captured function seeds a generator (torch.manual_seed), which would happen once, at the capture: "
            "do it outside, before the call"
        )


def default_generator(device: Any = "pjrt") -> torch.Generator:
    """Returns the generator from which random ops on ``device`` draw by default."""
    return _C.default_generator(_device(device).index)


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator.

    Args:
        seed: an int from -2**63 to 2**64 - 1; a negative one is taken modulo 2**64.

    Raises:
        ValueError: ``seed`` is out of this range.
        torch_pjrt.CaptureError: the call is in a function that is being captured.
    """
    _check_not_captured()
    default_generator().manual_seed(int(seed))


def _generators() -> list[torch.Generator]:
    """Returns the generators of all devices, or of the first one before a client has been started."""
    return [default_generator(index) for index in range(_C.device_count() if _C.is_initialized() else 1)]


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices with one seed, as ``manual_seed`` does for the current device."""
    _check_not_captured()
    for generator in _generators():
        generator.manual_seed(int(seed))


def seed() -> int:
    """Seeds the current device's generator from the system and returns the seed."""
    _check_not_captured()
    return default_generator().seed()


def seed_all() -> None:
    """Seeds the generators of all devices with one seed from the system."""
    _check_not_captured()
    first, *others = _generators()
    chosen = first.seed()
    for generator in others:
        generator.manual_seed(chosen)


def initial_seed() -> int:
    """Returns the seed of the current device's generator."""
    return default_generator().initial_seed()


def get_rng_state(device: Any = "pjrt") -> torch.Tensor:
    """Returns the generator's state: a CPU uint8 tensor of 16 elements."""
    return default_generator(device).get_state()


def set_rng_state(state: torch.Tensor, device: Any = "pjrt") -> None:
    """Sets a state that ``get_rng_state`` returned.

    Args:
        state: a CPU uint8 tensor of 16 elements.
        device: the device of the generator.

    Raises:
        RuntimeError: ``state`` is another tensor.
    """
    default_generator(device).set_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Returns the states of all devices, by index, as ``get_rng_state`` does."""
    return [generator.get_state() for generator in _generators()]


def set_rng_state_all(states: Iterable[torch.Tensor]) -> None:
    """Sets the states that ``get_rng_state_all`` returned, one per device. Raises as ``set_rng_state`` does."""
    for index, state in enumerate(states):
        set_rng_state(state, index)
