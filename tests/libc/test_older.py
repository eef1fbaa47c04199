"""The replacements of newer symbols behave like the symbols (src/libc/older.cpp)."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

COMPILER = os.environ.get("CXX") or shutil.which("c++")


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it stands in the places of glibc's symbols")
def test_it_does_what_glibc_does(tmp_path: Path) -> None:
    program = tmp_path / "older"
    source = Path(__file__).with_name("older.cpp")
    libraries = ["-pthread", "-ldl", "-l:libdl.so.2"]
    command = [str(COMPILER), "-std=c++20", "-O1", "-Wall", "-Werror", source, "-o", program, *libraries]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    line = subprocess.run([program]).returncode
    assert line == 0, f"line {line} of {source} doesn't hold"
