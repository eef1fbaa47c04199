"""Streams and events, as in ``torch.cuda``.

A device has one queue, and every stream is that queue: work runs in the order in which it was started, and streams of
one device are equal. Work is recorded first and started later (see docs/device.md), so whatever asks about work done
(``record``, ``query``, ``synchronize``) starts first what is recorded.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from torch_pjrt import _C


def _device(device: Any) -> torch.device:
    """What torch.pjrt's functions take for a device, with its index; an error where the plugin has no such device."""
    if device is None:
        return torch.device("pjrt", _C.current_device())
    if isinstance(device, int):
        return torch.device("pjrt", _C.device_index(device))
    device = torch.device(device)
    if device.type != "pjrt":
        raise ValueError(f"expected a pjrt device, got {device}")
    return torch.device("pjrt", _C.current_device() if device.index is None else _C.device_index(device.index))


class Stream(torch.Stream):
    """The queue of a device.

    Args:
        device: an index, ``"pjrt:1"`` or a ``torch.device``; default: the current one.
        priority: taken for compatibility; there is one queue and so one priority.
    """

    def __new__(cls, device: Any = None, priority: int = 0) -> Stream:
        return super().__new__(cls, device=_device(device), priority=priority)

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        pass


class _IsEvent(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "pjrt"


class Event(metaclass=_IsEvent):
    """A moment in the queue: makes a ``torch.Event``, which compares times with no subclass of itself.

    ``record()`` marks a place in the program; the event is done when all that was recorded before it is. ``query()``
    and ``synchronize()`` start that. With ``enable_timing``, ``record()`` does, so that nothing after it is measured
    with it: ``elapsed_time`` is the time between the ends of what was before each, in milliseconds.

    Args:
        enable_timing: whether ``elapsed_time`` may be asked.
        blocking: taken for compatibility; waiting always sleeps.
        interprocess: must be False.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        if interprocess:
            raise NotImplementedError("an event of the pjrt device can't be shared between processes")
        return torch.Event(device="pjrt", enable_timing=enable_timing, blocking=blocking)


def current_stream(device: Any = None) -> torch.Stream:
    """The queue of ``device``."""
    return Stream(device)


def default_stream(device: Any = None) -> torch.Stream:
    """The queue of ``device``."""
    return Stream(device)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes the stream's device the current one; the stream is its queue anyway."""
    if stream is not None:
        _C.set_device(_device(stream.device).index)


class stream:
    """``with torch.pjrt.stream(s): ...`` makes the stream's device the current one. Nothing runs beside the queue."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self.before = int(_C.current_device())
        set_stream(self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C.set_device(self.before)


StreamContext = stream
