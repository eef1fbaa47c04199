"""``torch.pjrt``: what ``torch.cuda`` is for CUDA."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.device import generators
from torch_pjrt.device.generators import (
    default_generator as default_generator,
    get_rng_state as get_rng_state,
    get_rng_state_all as get_rng_state_all,
    initial_seed as initial_seed,
    manual_seed as manual_seed,
    manual_seed_all as manual_seed_all,
    seed as seed,
    seed_all as seed_all,
    set_rng_state as set_rng_state,
    set_rng_state_all as set_rng_state_all,
)
from torch_pjrt.device.memory import (
    empty_cache as empty_cache,
    max_memory_allocated as max_memory_allocated,
    max_memory_reserved as max_memory_reserved,
    mem_get_info as mem_get_info,
    memory_allocated as memory_allocated,
    memory_reserved as memory_reserved,
    memory_stats as memory_stats,
    memory_summary as memory_summary,
    reset_accumulated_memory_stats as reset_accumulated_memory_stats,
    reset_peak_memory_stats as reset_peak_memory_stats,
)
from torch_pjrt.device.streams import (
    Event as Event,
    Stream as Stream,
    StreamContext as StreamContext,
    _device,
    current_stream as current_stream,
    default_stream as default_stream,
    set_stream as set_stream,
    stream as stream,
)
from torch_pjrt.program.metrics import Metrics as _Metrics

random = generators  # torch.cuda.random's names
OutOfMemoryError = torch.OutOfMemoryError

# torch.utils.checkpoint saves the generators' state only of a device module that says so; ours need no client.
_initialized = True


def init() -> None:
    """Starts the client now, instead of at the first use of data.

    Raises:
        RuntimeError: no plugin can be used; the text says why, with the cure.
    """
    _C.plugin()


def is_initialized() -> bool:
    """True once a client runs."""
    return bool(_C.is_initialized())


def is_available() -> bool:
    """True if a PJRT plugin is installed, and finds a device as far as can be told without starting it.

    PyTorch asks in each :func:`torch.compile`, whatever its backend, and a client takes memory, a GPU's too. False once
    no plugin could be started.
    """
    try:
        return int(_C.most_devices()) > 0
    except RuntimeError:
        return False


def device_count() -> int:
    """Number of devices; 0 without a plugin. Starts the client."""
    try:
        return int(_C.device_count())
    except RuntimeError:
        return 0


def current_device() -> int:
    """Index of the device that ``device="pjrt"`` means in this thread."""
    return int(_C.current_device())


def set_device(device: Any) -> None:
    """Makes a device this thread's current one.

    Args:
        device: an index, ``"pjrt:1"`` or a ``torch.device``. A negative index does nothing.

    Raises:
        RuntimeError: there is no such device.
        ValueError: the device is of another type.
    """
    _C.set_device(device if isinstance(device, int) else _device(device).index)


class device:
    """Context manager that changes the current device: ``with torch.pjrt.device(1): ...``.

    Args:
        device: an index, ``"pjrt:1"`` or a ``torch.device``. None and a negative index change nothing.
    """

    def __init__(self, device: Any) -> None:
        self.index = -1 if device is None else device if isinstance(device, int) else _device(device).index

    def __enter__(self) -> None:
        self.before = current_device()
        _C.set_device(self.index)

    def __exit__(self, *exception: object) -> None:
        _C.set_device(self.before)


class device_of(device):
    """Context manager that makes a tensor's device the current one; does nothing for a tensor elsewhere."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == "pjrt" else None)


def synchronize(device: Any = None) -> None:
    """Runs everything that is pending and waits until the device is done. Ctrl-C ends the wait, not the work.

    Raises:
        RuntimeError: a program failed, now or while nobody waited for it.
    """
    index = _device(device).index
    _C.start_all("torch.pjrt.synchronize")
    _C.wait(index)


def get_device_name(device: Any = None) -> str:
    """What the plugin calls the device: ``"cpu"``, ``"NVIDIA H100 80GB HBM3"``."""
    return str(_C.device_properties(_device(device).index)["kind"])


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """CUDA's compute capability, such as ``(9, 0)``, where the plugin tells one; else ``(0, 0)``.

    What dtypes a device can hold is told by ``torch.accelerator.get_device_capability``.
    """
    told = str(_C.device_properties(_device(device).index)["attributes"].get("compute_capability", ""))
    major, _, minor = told.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


@dataclass(frozen=True)
class DeviceProperties:
    """What is known of a device. ``total_memory``: bytes, None where the plugin doesn't tell."""

    name: str
    platform: str
    platform_version: str
    plugin: str
    total_memory: int | None
    is_host_memory: bool
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def is_integrated(self) -> bool:
        """CUDA's name for a device whose memory is the host's."""
        return self.is_host_memory


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What the plugin tells of the device. ``attributes`` has what only some plugins have."""
    index = _device(device).index
    told = _C.device_properties(index)
    try:
        total = mem_get_info(index)[1]
    except NotImplementedError:
        total = None
    return DeviceProperties(
        name=told["kind"],
        platform=_C.platform_name(),
        platform_version=_C.platform_version(),
        plugin=_C.plugin()[0],
        total_memory=total,
        is_host_memory=told["is_host_memory"],
        attributes=told["attributes"],
    )


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Dtypes that ``torch.autocast("pjrt")`` may compute in."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """XLA has bfloat16 on every device."""
    return True


def _is_in_bad_fork() -> bool:
    """Was this process forked from one that used the device? Then it can't use it."""
    return bool(_C.in_forked_child())


def metrics() -> dict[str, Any]:
    """The same as ``torch_pjrt.metrics()``."""
    return _Metrics(_C.metrics())


def reset_metrics() -> None:
    """The same as ``torch_pjrt.reset_metrics()``."""
    _C.reset_metrics()
