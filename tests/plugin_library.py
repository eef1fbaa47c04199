"""Builds plugins of tests: a C or C++ source as a shared library."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import torch_pjrt.plugins

ROOT = Path(__file__).resolve().parents[1]
MADE = ROOT / "build/test_plugins"


def plugin_library(source: Path, library: Path, *options: str) -> Path:
    """Builds ``source`` as ``library``. Raises without a C compiler ($CC, cc), with which the core was built.

    It is compiled once per checkout, by the first process that needs it, and again if it, a header next to it or an
    option has changed. Other included files must be named by an option, such as a macro for a version.
    """
    compiler = os.environ.get("CC", "cc")
    read = [source, *sorted(source.parent.glob("*.h"))]
    reported = hashlib.sha256(repr((compiler, options)).encode())
    for path in read:
        reported.update(path.read_bytes())
    made = MADE / f"{source.stem}-{reported.hexdigest()[:16]}.so"
    MADE.mkdir(parents=True, exist_ok=True)
    with open(made.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            part = made.with_suffix(".part")
            subprocess.run([compiler, "-shared", "-fPIC", "-o", part, source, *options], check=True)
            part.replace(made)
    shutil.copyfile(made, library)
    return library


def own_memory(folder: Path) -> dict[str, str]:
    """Returns the environment of a process whose device has its own memory (tests/pjrt/own_memory.c)."""
    host = torch_pjrt.plugins.find_plugins()["xla_cpu_pjrt"].path
    library = folder / "own_memory_cpu.so"
    plugin_library(ROOT / "tests/pjrt/own_memory.c", library, f"-I{Path(host).parent / 'include'}", "-ldl")
    return {"TORCH_PJRT_PLUGIN": str(library), "TORCH_PJRT_TEST_PLUGIN": host, "TORCH_PJRT_CACHE": "0"}
