"""Handlers in C++ that are compiled on first use, and cached on disk by their text: ``source=``."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from torch_pjrt.kernels import include_folder
from torch_pjrt.kernels.call import Call
from torch_pjrt.kernels.functions import place_of, text_for
from torch_pjrt.kernels.libraries import Layouts, Library

FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-w")
_temporary: list[tempfile.TemporaryDirectory[str]] = []


class Source:
    """The text of a handler, or a function that returns it for a call."""

    def __init__(self, text: str | Callable[[Call], str], symbol: str, layouts: Layouts, flags: Sequence[str]) -> None:
        if not isinstance(text, str) and not callable(text):
            raise TypeError("register_kernel: source= is C++, or a function of the call that gives it")
        self.text, self.symbol, self.layouts, self.flags = text, symbol, layouts, tuple(flags)
        where = "" if isinstance(text, str) else f" of {place_of(text)}"
        self.label = f"C++ '{symbol}'{where}"
        if isinstance(text, str):
            self.library(text)

    def library(self, text: str) -> Library:
        return Library(compiled(text, self.flags, self.label), self.symbol, self.layouts, self.label)

    def lower(self, call: Call) -> tuple[str, str]:
        return self.library(text_for(call, self.text, self.label)).lower(call)


def compiled(text: str, flags: Sequence[str], label: str) -> Path:
    """Returns the shared library of this text; compiles it unless it is on disk.

    Raises:
        RuntimeError: there is no compiler, or the compiler rejects the text.
    """
    key = hashlib.sha256("\0".join([text, *FLAGS, *flags, _machine()]).encode()).hexdigest()[:40]
    folder = cache_folder()
    path = folder / f"{key}.so"
    if is_own(path):
        return path
    compiler = next((found for name in _compilers() if (found := shutil.which(name))), None)
    if compiler is None:
        raise RuntimeError(
            f"register_kernel: {label} needs a C++ compiler, and there is none ({', '.join(_compilers())}): install "
            "one, name it in CXX, or give the handler as library="
        )
    with tempfile.TemporaryDirectory(dir=folder) as work:
        source, made = Path(work, "kernel.cpp"), Path(work, "kernel.so")
        source.write_text(text)
        command = [compiler, *FLAGS, "-I", str(include_folder()), *flags, str(source), "-o", str(made)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"register_kernel: {label} doesn't compile ({compiler}):\n{result.stderr[-4000:]}")
        os.chmod(made, 0o700)
        os.replace(made, path)
    return path


def _compilers() -> list[str]:
    own = os.environ.get("CXX")
    return [own] if own else ["c++", "g++", "clang++"]


@cache
def _machine() -> str:
    """Returns a description of the processor and of the headers, on which compiled code depends."""
    lines = set()
    if (cpu := Path("/proc/cpuinfo")).exists():
        lines = {line for line in cpu.read_text().splitlines() if line.startswith(("model name", "flags", "Features"))}
    headers = sorted(include_folder().rglob("*.h"))
    content = hashlib.sha256(b"".join(header.read_bytes() for header in headers)).hexdigest()
    return "\n".join([platform.machine(), content, *sorted(lines)])


def is_own(path: Path) -> bool:
    """Whether the file exists, and only this user can have written it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return not stat.S_ISLNK(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def cache_folder() -> Path:
    """Returns ``kernels`` in the folder of compiled programs; without a trusted one, a folder of this process only."""
    if os.environ.get("TORCH_PJRT_CACHE") != "0":
        given = os.environ.get("TORCH_PJRT_CACHE_DIR", "")
        system = os.environ.get("XDG_CACHE_HOME", "")
        if not system.startswith("/"):
            system = os.path.expanduser("~/.cache")
        folder = Path(given or os.path.join(system, "torch_pjrt")) / "kernels"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_own(folder) and os.access(folder, os.W_OK):
                return folder
        except OSError:
            pass
    if not _temporary:
        _temporary.append(tempfile.TemporaryDirectory(prefix="torch_pjrt_kernels_"))
    return Path(_temporary[0].name)
