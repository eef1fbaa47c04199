"""The exceptions that this package defines."""

from __future__ import annotations


class CaptureError(RuntimeError):
    """Raised when a function can't be captured as one program; ``compile_step``, ``jit`` and ``export`` raise it.

    The message names the cause and, in most cases, what to do instead. Example:
    ``except torch_pjrt.CaptureError as error: print(error)``.
    """


class ValueNeeded(CaptureError):
    """Raised when a capture needs the value of a tensor, which only a run of the program could give."""
