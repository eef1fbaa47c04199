"""Kernels that replace composites: ``torch_pjrt.register_kernel``."""

from __future__ import annotations

from pathlib import Path


def include_folder() -> Path:
    """Returns the folder of the headers of XLA's FFI (``xla/ffi/api/ffi.h``), against which handlers are compiled."""
    return Path(__file__).resolve().parents[1] / "include"
