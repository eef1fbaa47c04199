"""Decompositions that PyTorch lacks, or has wrong. They take precedence over PyTorch's own.

The modules imported here register kernels with the dispatcher at start.
"""

from collections.abc import Callable
from typing import Any

from torch_pjrt.decompositions import (
    assertions,
    attention,
    circular_padding,
    experts,
    factories,
    gated,
    losses,
    nested,
    optimizers,
    quantization,
    suppression,
)
from torch_pjrt.decompositions.recurrent import cells, layer, modules
from torch_pjrt.decompositions.table import DECOMPOSITIONS
from torch_pjrt.decompositions.undecomposed import alignment, histogram, least_squares, outlines, synchronized


def every() -> dict[str, Callable[..., Any]]:
    """Returns the decompositions by the op's name. Modules without kernels are imported at the first call."""
    from torch_pjrt.decompositions import (  # noqa: F401
        deformable,
        indexing,
        normalization,
        regions,
        sampling,
        sets,
        unpooling,
    )
    from torch_pjrt.decompositions.undecomposed import distances, fractional_pooling, segments  # noqa: F401

    return DECOMPOSITIONS


__all__ = [
    "alignment",
    "assertions",
    "attention",
    "cells",
    "circular_padding",
    "every",
    "experts",
    "factories",
    "gated",
    "histogram",
    "layer",
    "least_squares",
    "losses",
    "modules",
    "nested",
    "optimizers",
    "outlines",
    "quantization",
    "suppression",
    "synchronized",
]
