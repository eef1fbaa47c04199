"""The C++ library and pjrt-run, built by CMake from this checkout and installed as for a user without torch.

They are built without optimization, which would double the time of the build: XLA does the work.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, **env: str) -> str:
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=900, env={**os.environ, **env}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def tool(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is missing"
    return found


def plugin() -> str:
    from torch_pjrt import _C

    return _C.plugin()[1]


def _has_onednn() -> bool:
    return (Path(sys.prefix) / "lib/cmake/dnnl/dnnl-config.cmake").exists()


def onednn() -> Path | None:
    """Returns the library of oneDNN's kernels if oneDNN is in the Python environment."""
    return installed() / "lib/libtorch_pjrt_onednn.so" if _has_onednn() else None


@cache
def installed() -> Path:
    """Returns the installation folder. The library is built once per checkout, and again after changes."""
    build = ROOT / "build/tests_program"  # beside that of ./dev bench deploy
    build.mkdir(parents=True, exist_ok=True)
    with open(build / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(
            tool("cmake"), "-S", ROOT, "-B", build, "-G", "Ninja", "-DTORCH_PJRT_PROGRAM=ON",
            "-DCMAKE_CXX_FLAGS_RELEASE=-O0",
            f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", f"-DPython_EXECUTABLE={sys.executable}",
            f"-DCMAKE_INSTALL_PREFIX={build / 'installed'}", "-DCMAKE_INSTALL_LIBDIR=lib",
            f"-DTORCH_PJRT_ONEDNN={'ON' if _has_onednn() else 'OFF'}", f"-DCMAKE_PREFIX_PATH={sys.prefix}",
        )  # fmt: skip
        run(tool("cmake"), "--build", build, "--target", "install", "deploy_bench")  # which nothing else builds
    return build / "installed"
