"""``torch.pjrt``: the device module, the counterpart of ``torch.cuda``."""

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

random = generators  # the counterpart of torch.cuda.random
OutOfMemoryError = torch.OutOfMemoryError

# torch.utils.checkpoint saves the state of generators only if the device module has this attribute; these generators
# work before a client has been started.
_initialized = True


def init() -> None:
    """Starts the PJRT client now, instead of at the first use of data.

    Raises:
        RuntimeError: no plugin can be used; the message has the reason and the cure.
    """
    _C.plugin()


def is_initialized() -> bool:
    """Whether a PJRT client has been started."""
    return bool(_C.is_initialized())


def is_available() -> bool:
    """Whether a PJRT plugin is installed and appears to have a device.

    The client is not started: PyTorch calls this in each :func:`torch.compile` with any backend, and a client takes
    memory, on a GPU as well. Returns False after an attempt to start a plugin has failed.
    """
    try:
        return int(_C.most_devices()) > 0
    except RuntimeError:
        return False


def device_count() -> int:
    """Starts the client and returns the number of devices, or 0 without a plugin."""
    try:
        return int(_C.device_count())
    except RuntimeError:
        return 0


def current_device() -> int:
    """Returns the index of the device that ``device="pjrt"`` means in this thread."""
    return int(_C.current_device())


def set_device(device: Any) -> None:
    """Sets this thread's current device.

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
    """Runs all pending work and waits until the device has finished. Ctrl-C ends the wait, but not the work.

    Args:
        device: an index, ``"pjrt:1"`` or a ``torch.device``. Default: the current device.

    Raises:
        RuntimeError: a program failed, now or earlier without a wait for it.
    """
    index = _device(device).index
    _C.start_all("torch.pjrt.synchronize")
    _C.wait(index)


def get_device_name(device: Any = None) -> str:
    """Returns the plugin's name for the device, such as ``"cpu"`` or ``"NVIDIA H100 80GB HBM3"``."""
    return str(_C.device_properties(_device(device).index)["kind"])


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Returns CUDA's compute capability, such as ``(9, 0)``, if the plugin reports it; else ``(0, 0)``.

    ``torch.accelerator.get_device_capability`` returns the dtypes that a device supports.
    """
    reported = str(_C.device_properties(_device(device).index)["attributes"].get("compute_capability", ""))
    major, _, minor = reported.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of a device. ``total_memory`` is in bytes, or None if the plugin doesn't report it."""

    name: str
    platform: str
    platform_version: str
    plugin: str
    total_memory: int | None
    is_host_memory: bool
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def is_integrated(self) -> bool:
        """Whether the device's memory is the host's, under CUDA's name."""
        return self.is_host_memory


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Returns the device's properties as the plugin reports them; ``attributes`` has those of single plugins."""
    index = _device(device).index
    reported = _C.device_properties(index)
    try:
        total = mem_get_info(index)[1]
    except NotImplementedError:
        total = None
    return DeviceProperties(
        name=reported["kind"],
        platform=_C.platform_name(),
        platform_version=_C.platform_version(),
        plugin=_C.plugin()[0],
        total_memory=total,
        is_host_memory=reported["is_host_memory"],
        attributes=reported["attributes"],
    )


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Returns the dtypes in which ``torch.autocast("pjrt")`` may compute."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Returns True: XLA has bfloat16 on every device."""
    return True


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that used the device, so that it can't use the device."""
    return bool(_C.in_forked_child())


def metrics() -> dict[str, Any]:
    """Returns the counters, as ``torch_pjrt.metrics()`` does."""
    return _Metrics(_C.metrics())


def reset_metrics() -> None:
    """Sets every counter to zero, as ``torch_pjrt.reset_metrics()`` does."""
    _C.reset_metrics()
