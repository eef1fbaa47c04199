"""Memory of the devices, as in ``torch.cuda.memory``.

What is counted are the buffers that hold values, in bytes of dense arrays. Calls that are recorded and not run yet hold
none, and what a program needs while it runs is not seen here: where the plugin keeps statistics of its own,
``memory_stats`` has them under ``plugin.``.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.device.accelerator import ours
from torch_pjrt.device.streams import _device


def memory_allocated(device: Any = None) -> int:
    """Bytes in the device's buffers now."""
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that the device's buffers have held since the start or ``reset_peak_memory_stats``."""
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Any = None) -> int:
    """Bytes that the plugin holds for the device, where it tells; else the same as ``memory_allocated``."""
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Any = None) -> int:
    """The most of ``memory_reserved``; ``reset_peak_memory_stats`` does not reach the plugin's own peak."""
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Statistics by the names that ``torch.cuda.memory_stats`` has for them (``"allocated_bytes.all.current"``, …).

    There are no pools, so only ``all`` is counted. What the plugin tells is added as ``"plugin.bytes_in_use"``,
    ``"plugin.peak_bytes_in_use"``, ``"plugin.bytes_limit"`` and so on, after ``PJRT_Device_MemoryStats``. Empty before
    the client is started.
    """
    index = _device(device).index
    with ours():
        stats: dict[str, Any] = dict(torch.accelerator.memory_stats(index))
    stats.update({f"plugin.{name}": value for name, value in _C.plugin_memory(index).items()})
    return stats


def reset_peak_memory_stats(device: Any = None) -> None:
    """``max_memory_allocated`` starts anew from what is allocated now."""
    with ours():
        torch.accelerator.reset_peak_memory_stats(_device(device).index)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """The numbers of allocated and freed bytes and buffers start anew from 0."""
    with ours():
        torch.accelerator.reset_accumulated_memory_stats(_device(device).index)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes that are free and bytes in all. Of a device that computes in the host's memory, they are the host's.

    Raises:
        NotImplementedError: the plugin doesn't tell.
    """
    with ours():
        free, total = torch.accelerator.get_memory_info(_device(device).index)
    return free, total


def empty_cache() -> None:
    """Does nothing: a buffer's memory is the plugin's again as soon as nothing refers to it."""
