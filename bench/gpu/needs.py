"""Finds what a machine lacks for a run, without importing torch, and installs the package for its torch from a wheel or
a build.

Nothing is downloaded, because a lent machine may have no network; missing software is reported in the first second.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
# Modules without which a part still runs; it then names the items that needed them.
USEFUL = {
    "triton": "Inductor compiles nothing for CUDA",
    "transformers": "no BERT, GPT-2 and Llama",
    "matplotlib": "no picture",
    "pytest": "no tests",
    "pytest_timeout": "no tests",
    "xdist": "no tests",
}
BUILDS = {"scikit_build_core": "scikit-build-core", "cmake": "cmake", "ninja": "ninja"}


def there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def torch_versions() -> tuple[str, str | None] | None:
    """Returns (version, CUDA's version) from torch's own file; None without torch."""
    spec = importlib.machinery.PathFinder.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    text = Path(spec.submodule_search_locations[0], "version.py").read_text()
    version, cuda = (re.search(rf"^{name}\b.*?= *['\"]([^'\"]+)", text, re.M) for name in ("__version__", "cuda"))
    return (version[1] if version else "unknown", cuda[1] if cuda else None)


def plugins() -> ModuleType:
    """Imports torch_pjrt.plugins by itself, because the package around it needs its core."""
    spec = importlib.util.spec_from_file_location("plugins", ROOT / "python/torch_pjrt/plugins.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["plugins"] = module  # for its dataclass
    spec.loader.exec_module(module)
    return module


def cuda_plugin() -> str | None:
    try:
        return str(plugins().resolve(os.environ.get("TORCH_PJRT_PLUGIN", "cuda")).path)
    except RuntimeError:
        return None


def header() -> bool:
    folders = [Path(folder) for folder in [os.environ.get("PJRT_INCLUDE_DIR")] if folder]
    folders += [Path(place, "xla_plugins/xla_cpu_pjrt/include") for place in sys.path]
    return any((folder / "pjrt_c_api.h").exists() for folder in folders)


def fits(wheel: Path, version: str) -> str:
    """Returns why the wheel is not for this Python and this torch, or ""."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    if f"-{tag}-" not in wheel.name:
        return f"{wheel.name} is not for this Python ({tag})"
    core = "torch_pjrt/torch_{}_{}/".format(*version.split(".")[:2])
    with zipfile.ZipFile(wheel) as archive:
        if not any(name.startswith(core) for name in archive.namelist()):
            return f"{wheel.name} has no core for torch {version}: ./dev wheel beside that torch makes one"
    return ""


def lacks(wheel: Path | None) -> list[str]:
    """Returns missing requirements without which nothing can run, each with its cure."""
    found = []
    if sys.version_info < (3, 11):
        found.append(f"Python 3.11 or later; this is {sys.version.split()[0]} ({sys.executable})")
    if not has_driver():
        found.append("NVIDIA's driver: libcuda.so.1 can't be loaded")
    versions = torch_versions()
    if versions is None:
        found.append(f"torch for CUDA, in {sys.executable}; TORCH_PJRT_VENV=DIR names another environment")
    elif versions[1] is None:
        found.append(f"torch for CUDA: torch {versions[0]} in {sys.executable} is one without")
    if cuda_plugin() is None:
        found.append("a PJRT plugin for CUDA: pip install jax-cuda13-pjrt")
    found += [f"{module}: pip install {module}" for module in ("numpy", "rich") if not there(module)]
    if wheel is not None:
        if not wheel.is_file():
            found.append(f"the wheel {wheel}")
        elif versions and (reason := fits(wheel, versions[0])):
            found.append(f"a wheel that fits: {reason}")
        return found
    hint = "; or give a wheel: --wheel FILE"
    found += [f"{module}, to build: pip install {name}{hint}" for module, name in BUILDS.items()
              if not there(module) and not shutil.which(name)]  # fmt: skip
    if not (os.environ.get("CXX") or shutil.which("c++")):
        found.append(f"a C++20 compiler, to build{hint}")
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        found.append(f"Python's headers, to build{hint}")
    if not header():
        found.append(f"pjrt_c_api.h, to build: the wheel xla-cpu-pjrt, or its folder in PJRT_INCLUDE_DIR{hint}")
    return found


def lesser() -> list[str]:
    return [f"{module} is not installed: {what}" for module, what in USEFUL.items() if not there(module)]


def unpack(wheel: Path, site: Path) -> None:
    shutil.rmtree(site, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)


def build(site: Path, say: Callable[[str], None]) -> None:
    """Installs the package as pip builds it from this checkout, with the core compiled on all cores."""
    say("building the core (minutes; --wheel FILE takes one that was built before)")
    shutil.rmtree(site, ignore_errors=True)
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--no-index", "--no-build-isolation"),
        *("--config-settings", f"build-dir={site.parent / 'core'}", "--target", str(site), str(ROOT)),
    ]
    subprocess.run(command, check=True, env={**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1)})
