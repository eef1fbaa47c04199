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


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of ``memory_stats``, to be printed: the device's buffers now, at most, and all that came and went.

    Args:
        device: the device; the current one by default.
        abbreviated: leave the plugin's own statistics out.
    """
    device, stats = _device(device), memory_stats(device)
    rows = [f"PJRT memory, device {device}", f"{'':<18}{'now':>14}{'peak':>14}{'allocated':>14}{'freed':>14}"]
    for told, name, shown in (("bytes of buffers", "allocated_bytes", _bytes), ("buffers", "active", str)):
        columns = (stats.get(f"{name}.all.{when}", 0) for when in ("current", "peak", "allocated", "freed"))
        rows.append(f"{told:<18}" + "".join(f"{shown(column):>14}" for column in columns))
    plugin = [] if abbreviated else [name for name in stats if name.startswith("plugin.")]
    rows += [f"{name:<46}{_bytes(stats[name]) if 'bytes' in name else str(stats[name]):>14}" for name in plugin]
    return "\n".join(rows)


def _bytes(count: int) -> str:
    """In the unit in which it has at most four digits, as torch.cuda.memory_summary has it."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 10_000 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}"


def empty_cache() -> None:
    """Does nothing: a buffer's memory is the plugin's again as soon as nothing refers to it."""
