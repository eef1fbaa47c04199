"""Streams and events, as in ``torch.cuda``.

A device has one queue, and every stream is that queue: work runs in the order in which it was started, and streams of
one device are equal. Work is recorded first and started later (see docs/device.md), so the calls that ask for its
progress (``record``, ``query``, ``synchronize``) start the recorded work first.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from torch_pjrt import _C


def _device(device: Any) -> torch.device:
    """Converts the ``device`` argument of torch.pjrt's functions to a device with an index; raises if there is none."""
    if device is None:
        return torch.device("pjrt", _C.current_device())
    if isinstance(device, int):
        return torch.device("pjrt", _C.device_index(device))
    device = torch.device(device)
    if device.type != "pjrt":
        raise ValueError(f"expected a pjrt device, got {device}")
    return torch.device("pjrt", _C.current_device() if device.index is None else _C.device_index(device.index))


class Stream(torch.Stream):
    """A device's queue.

    Args:
        device: an index, ``"pjrt:1"`` or a ``torch.device``. Default: the current device.
        priority: ignored, for compatibility; one queue has one priority.
    """

    def __new__(cls, device: Any = None, priority: int = 0) -> Stream:
        return super().__new__(cls, device=_device(device), priority=priority)

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        pass


class _IsEvent(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "pjrt"


class Event(metaclass=_IsEvent):
    """A point in the queue. The constructor returns a ``torch.Event``, because events of subclasses can't be timed.

    ``record()`` marks a point in the program. The event is done when all work recorded before it is done; ``query()``
    and ``synchronize()`` start that work. With ``enable_timing``, ``record()`` starts it, so that later work isn't
    measured with it. ``elapsed_time`` is the time in milliseconds between the ends of the work before each event.

    Args:
        enable_timing: allows ``elapsed_time``.
        blocking: ignored, for compatibility; a wait always sleeps.
        interprocess: must be False.

    Raises:
        NotImplementedError: ``interprocess`` is True.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        if interprocess:
            raise NotImplementedError("an event of the pjrt device can't be shared between processes")
        return torch.Event(device="pjrt", enable_timing=enable_timing, blocking=blocking)


def current_stream(device: Any = None) -> torch.Stream:
    """Returns the queue of ``device``."""
    return Stream(device)


def default_stream(device: Any = None) -> torch.Stream:
    """Returns the queue of ``device``."""
    return Stream(device)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes the stream's device the current one. Its only queue is the stream."""
    if stream is not None:
        _C.set_device(_device(stream.device).index)


class stream:
    """``with torch.pjrt.stream(s): ...`` makes the stream's device the current one. A device has no other queue."""

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
