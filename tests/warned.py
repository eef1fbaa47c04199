"""Collects PyTorch's warnings, including those that it gives only once."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch


def warned(call: Callable[[], object]) -> list[str]:
    """The warnings of a call, without the place in PyTorch's or our sources."""
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
    finally:
        torch.set_warn_always(False)
    return [str(warning.message).split(" (Triggered")[0] for warning in caught]
