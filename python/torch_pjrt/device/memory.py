"""Memory of the devices, as in ``torch.cuda.memory``.

The counters are of buffers that hold values, in bytes of dense arrays. Calls that are recorded and have not run yet
have no buffers, and temporary memory of a running program is not counted. If the plugin keeps its own statistics,
``memory_stats`` returns them under ``plugin.``.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.device.accelerator import ours
from torch_pjrt.device.streams import _device


def memory_allocated(device: Any = None) -> int:
    """Returns the bytes in the device's buffers."""
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Any = None) -> int:
    """Returns the peak of ``memory_allocated``, in bytes, since the start or ``reset_peak_memory_stats``."""
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Any = None) -> int:
    """Returns the bytes that the plugin holds for the device if it reports them, else ``memory_allocated``."""
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Any = None) -> int:
    """Returns the peak of ``memory_reserved``; ``reset_peak_memory_stats`` does not reset the plugin's own peak."""
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Returns statistics under the names of ``torch.cuda.memory_stats`` (``"allocated_bytes.all.current"``, …).

    Only ``all`` is counted, because there are no pools. The plugin's own statistics are added as
    ``"plugin.bytes_in_use"``, ``"plugin.peak_bytes_in_use"``, ``"plugin.bytes_limit"`` and so on, after
    ``PJRT_Device_MemoryStats``. Before the client is started, the dict is empty.
    """
    index = _device(device).index
    with ours():
        stats: dict[str, Any] = dict(torch.accelerator.memory_stats(index))
    stats.update({f"plugin.{name}": value for name, value in _C.plugin_memory(index).items()})
    return stats


def reset_peak_memory_stats(device: Any = None) -> None:
    """Sets the peak of ``max_memory_allocated`` to the bytes that are allocated now."""
    with ours():
        torch.accelerator.reset_peak_memory_stats(_device(device).index)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Sets the totals of allocated and freed bytes and buffers to 0."""
    with ours():
        torch.accelerator.reset_accumulated_memory_stats(_device(device).index)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Returns the free bytes and the total bytes; for a device that computes in the host's memory, those of the host.

    Raises:
        NotImplementedError: the plugin doesn't report them.
    """
    with ours():
        free, total = torch.accelerator.get_memory_info(_device(device).index)
    return free, total


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Returns a table of ``memory_stats`` for print: current, peak, allocated and freed bytes and buffers.

    Args:
        device: an index, ``"pjrt:1"`` or a ``torch.device``. Default: the current device.
        abbreviated: if True, without the plugin's own statistics.
    """
    device, stats = _device(device), memory_stats(device)
    rows = [f"PJRT memory, device {device}", f"{'':<18}{'now':>14}{'peak':>14}{'allocated':>14}{'freed':>14}"]
    for reported, name, shown in (("bytes of buffers", "allocated_bytes", _bytes), ("buffers", "active", str)):
        columns = (stats.get(f"{name}.all.{when}", 0) for when in ("current", "peak", "allocated", "freed"))
        rows.append(f"{reported:<18}" + "".join(f"{shown(column):>14}" for column in columns))
    plugin = [] if abbreviated else [name for name in stats if name.startswith("plugin.")]
    rows += [f"{name:<46}{_bytes(stats[name]) if 'bytes' in name else str(stats[name]):>14}" for name in plugin]
    return "\n".join(rows)


def _bytes(count: int) -> str:
    """Formats bytes in the unit in which they have at most four digits, as torch.cuda.memory_summary does."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 10_000 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.0f} {units[0]}"


def empty_cache() -> None:
    """Does nothing: the plugin reuses a buffer's memory as soon as nothing refers to it."""
