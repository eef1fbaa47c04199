"""StableHLO as a portable artifact: versioned bytecode, which later compilers read. JAX has the writer; without JAX
programs are text, which only compilers of about the same age read."""

from __future__ import annotations

import re
from collections import Counter
from importlib.util import find_spec

FORMS = ("portable", "text")
OP = re.compile(r"\b((?:stablehlo|chlo)\.[a-z_0-9]+)\b(?! *=)")
KERNEL = re.compile(r'custom_call @"?([\w.]+)"?')


def has_writer() -> bool:
    return find_spec("jax") is not None


def artifact(text: str) -> bytes:
    """Returns bytecode of a version that compilers of the last twelve weeks read, too.

    Raises:
        ModuleNotFoundError: JAX is not installed.
    """
    from torch_pjrt.jax import _compat

    return _compat.portable_artifact(text)


def ops_in(text: str) -> dict[str, int]:
    """Returns the number of calls of each op."""
    return dict(sorted(Counter(OP.findall(text)).items()))


def kernels_in(text: str) -> list[str]:
    """Returns the targets of the kernels' handlers that the text calls."""
    return sorted({target for target in KERNEL.findall(text) if target.startswith("torch_pjrt.")})
