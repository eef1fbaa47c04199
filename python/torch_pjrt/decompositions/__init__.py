"""Decompositions that PyTorch lacks, or has wrong. They come before its own."""

from torch_pjrt.decompositions import (
    assertions,
    attention,
    factories,
    gated,
    indexing,
    losses,
    nested,
    normalization,
    optimizers,
    quantization,
    recurrent,
    recurrent_layer,
    recurrent_modules,
    sampling,
    sets,
)
from torch_pjrt.decompositions.table import DECOMPOSITIONS

__all__ = [
    "DECOMPOSITIONS",
    "assertions",
    "attention",
    "factories",
    "gated",
    "indexing",
    "losses",
    "nested",
    "normalization",
    "optimizers",
    "quantization",
    "recurrent",
    "recurrent_layer",
    "recurrent_modules",
    "sampling",
    "sets",
]
