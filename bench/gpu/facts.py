"""The machine and the installed software, which are recorded with every number."""

from __future__ import annotations

import importlib.metadata
import subprocess
from typing import Any


def driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def everything(device: str) -> dict[str, Any]:
    """Returns all facts; starts the plugin's client."""
    import torch

    import torch_pjrt
    from machine import facts

    found: dict[str, Any] = {**facts(), "torch_pjrt": torch_pjrt.__version__, "core": torch_pjrt._C.__file__}
    found |= versions("triton", "transformers", "jax-cuda13-pjrt", "xla-cpu-pjrt", "numpy")
    if device == "cuda" and torch.version.cuda:
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "gpu": properties.name,
            "gpu_memory": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "driver": driver(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
    return found
