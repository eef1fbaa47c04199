"""Errors for unsupported calls, and copies between the devices."""

from __future__ import annotations

from functools import partial

import torch
from beside_cpu import difference, must, program
from torch.nn import functional as F
from worker import Setting, Values


@program
def convolutions_of_integers(setting: Setting) -> Values:
    """Checks that the result is right, or that the error names the call: cuDNN has no such convolutions."""
    x, w = torch.randint(-5, 5, (1, 2, 6, 6)), torch.randint(-5, 5, (3, 2, 3, 3))
    found = {}
    for name, device, call in (
        ("lazily", "pjrt", F.conv2d),
        ("compiled", setting.device, torch.compile(F.conv2d, backend="pjrt")),
    ):
        try:
            found[name] = difference(call(x.to(device), w.to(device)), F.conv2d(x, w), 0.0)
        except RuntimeError as error:
            must("conv" in str(error), error)
            must(torch.pjrt.get_device_properties().platform != "cpu", error)
            found[name] = str(error)[:300]
    return found


@program
def too_little_memory(setting: Setting) -> Values:
    """Checks that torch.OutOfMemoryError is raised, after which everything continues."""
    x, found = torch.ones(1 << 21), {}
    for name, device, wrap in (
        ("lazily", "pjrt", lambda f: f),
        ("compiled", setting.device, partial(torch.compile, backend="pjrt")),
    ):
        there = x.to(device)
        call = wrap(lambda a: a.reshape(-1, 1) @ a.reshape(1, -1))
        try:
            call(there)[0, 0].item()
        except torch.OutOfMemoryError as error:
            found[name] = str(error)[:200]
        except (
            RuntimeError
        ) as error:  # raised by PyTorch's allocator for the CPU, which allocates a compiled call's result
            must(setting.device == "cpu" and "can't allocate memory" in str(error), error)
            found[name] = str(error)[:200]
        else:
            raise AssertionError("16 TiB were found")
        must(there.sum().item() == 1 << 21, "what was there before is not as it was")
    return found


@program
def beside_cuda(setting: Setting) -> Values:
    """Copies values between the devices."""
    x = torch.randn(100)
    there = x.to("pjrt").to(setting.device)
    back = (there * 2).to("pjrt").cpu()
    return {"moved": difference([there, back], [x, x * 2], 1e-6)}
