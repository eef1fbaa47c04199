"""Decompositions that are imported when the first call asks for one: the dispatcher need not know of them before."""

from torch_pjrt.decompositions import deformable, indexing, normalization, regions, sampling, sets
from torch_pjrt.decompositions.table import DECOMPOSITIONS

__all__ = ["DECOMPOSITIONS", "deformable", "indexing", "normalization", "regions", "sampling", "sets"]
