"""What this package raises of its own."""

from __future__ import annotations


class CaptureError(RuntimeError):
    """A function can't be made one program. The text says what is in the way, and mostly what to do instead."""


class ValueNeeded(CaptureError):
    """The value of a tensor is needed while a program is made, and only a run has it."""
