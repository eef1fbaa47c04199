"""Plugins that tests make: a C source as a shared library."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def plugin_library(source: Path, library: Path, *options: str) -> Path:
    """Compiles ``source`` to ``library``. Raises without a C compiler ($CC, cc): the core was built with one."""
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", library, source, *options]
    subprocess.run(command, check=True)
    return library
