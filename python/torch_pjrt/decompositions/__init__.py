"""Decompositions that PyTorch lacks, or has wrong. They come before its own.

Those here have kernels that the dispatcher knows from the start; ``late`` has the others.
"""

from collections.abc import Callable
from typing import Any

from torch_pjrt.decompositions import (
    assertions,
    attention,
    factories,
    gated,
    losses,
    nested,
    optimizers,
    quantization,
    recurrent,
    recurrent_layer,
    recurrent_modules,
    suppression,
)


def every() -> dict[str, Callable[..., Any]]:
    """By the op's name. The late ones are imported at the first call."""
    from torch_pjrt.decompositions.late import DECOMPOSITIONS

    return DECOMPOSITIONS


__all__ = [
    "assertions",
    "attention",
    "every",
    "factories",
    "gated",
    "losses",
    "nested",
    "optimizers",
    "quantization",
    "recurrent",
    "recurrent_layer",
    "recurrent_modules",
    "suppression",
]
