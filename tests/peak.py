"""Measures the memory that work takes."""

from __future__ import annotations

from collections.abc import Callable

import torch

import torch_pjrt


def status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def growth(work: Callable[[], torch.Tensor]) -> int:
    """Returns the maximal growth of the process's memory in bytes while `work` made a tensor."""
    torch.pjrt.synchronize()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets the peak
    before = status("VmRSS")
    torch_pjrt.sync(work())
    torch.pjrt.synchronize()
    return status("VmHWM") - before
