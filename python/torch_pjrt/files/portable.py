"""StableHLO as a portable artifact: bytecode of a version, which later compilers read. JAX has the writer; without it
programs are text, which a compiler of about the same age reads."""

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
    """Of a version that compilers of the last twelve weeks read, too.

    Raises:
        ModuleNotFoundError: there is no JAX.
    """
    from torch_pjrt.jax import _compat

    return _compat.portable_artifact(text)


def ops_in(text: str) -> dict[str, int]:
    """How many of each there are."""
    return dict(sorted(Counter(OP.findall(text)).items()))


def kernels_in(text: str) -> list[str]:
    """The handlers that it calls, by their targets."""
    return sorted({target for target in KERNEL.findall(text) if target.startswith("torch_pjrt.")})
