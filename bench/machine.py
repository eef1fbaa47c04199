"""What was measured, and where: the facts that stand beside every number."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent


def cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    result = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def plugin_path() -> str:
    """The plugin of bare PJRT: the one that TORCH_PJRT_PLUGIN names by path, else that of the wheel xla-cpu-pjrt."""
    named = os.environ.get("TORCH_PJRT_PLUGIN", "")
    if named.endswith(".so"):
        return named
    spec = importlib.util.find_spec("xla_plugins.xla_cpu_pjrt")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("bench: no plugin; install xla-cpu-pjrt or set TORCH_PJRT_PLUGIN to a plugin's .so")
    return str(Path(spec.submodule_search_locations[0]) / "xla_cpu_pjrt.so")


def plugin_version() -> str:
    if os.environ.get("TORCH_PJRT_PLUGIN", "").endswith(".so"):
        return "named by path"
    return f"xla-cpu-pjrt {importlib.metadata.version('xla-cpu-pjrt')}"


def facts() -> dict[str, object]:
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "plugin": plugin_version(),
        "plugin_path": Path(plugin_path()).name,
        "commit": commit(),
        "load_before": os.getloadavg()[0],
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }
