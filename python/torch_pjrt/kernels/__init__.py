"""Kernels that do composites in the place of their decompositions: ``torch_pjrt.register_kernel``."""

from __future__ import annotations

from pathlib import Path


def include_folder() -> Path:
    """Of the headers of XLA's FFI, ``xla/ffi/api/ffi.h``, which handlers are compiled with."""
    return Path(__file__).resolve().parents[1] / "include"
