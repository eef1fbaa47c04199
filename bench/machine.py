"""The facts that are recorded with every number: the machine, and the versions."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

from torch_pjrt import _C

ROOT = Path(__file__).resolve().parent.parent


def cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def instruction_sets() -> str:
    """Returns the instruction sets by which libraries choose kernels: "AVX-512 VNNI BF16, no AMX"."""
    flags: set[str] = set()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                flags = set(line.split())
                break
    if "avx512f" not in flags:
        return "AVX2" if "avx2" in flags else platform.machine()
    more = [name for flag, name in (("avx512_vnni", " VNNI"), ("avx512_bf16", " BF16")) if flag in flags]
    return f"AVX-512{''.join(more)}, {'AMX' if 'amx_tile' in flags else 'no AMX'}"


def commit() -> str:
    result = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def plugin() -> str:
    """Returns the plugin of the measurements: its name and its version."""
    name, path = _C.plugin()
    wheel = ""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        wheel = f" {importlib.metadata.version(name)}"
    return f"{name or Path(path).name}{wheel}, {_C.platform_version()}"


def facts() -> dict[str, object]:
    return {
        "cpu": cpu_model(),
        "isa": instruction_sets(),
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "device": ", ".join(sorted({torch.pjrt.get_device_name(i) for i in range(torch.pjrt.device_count())})),
        "plugin": plugin(),
        "commit": commit(),
        "load_before": os.getloadavg()[0],
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }
