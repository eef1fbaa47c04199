"""Compares small programs with CPU eager, one for each entry point to the device."""

from __future__ import annotations

from functools import partial

import smoke_tensors  # noqa: F401  each has programs

import smoke_compiled  # noqa: F401  isort: skip
import smoke_precision  # noqa: F401  isort: skip
import smoke_refusals  # noqa: F401  isort: skip
from beside_cpu import PROGRAMS, exact
from worker import Item, Setting

NOT_TUNED = {"TORCH_PJRT_XLA_OPTIONS": "xla_gpu_autotune_level=0"}
# Programs whose numbers were wrong without autotuning, or for which XLA then may choose another kernel.
UNTUNED = ("products of int8", "products of float8", "attention", "lazy arithmetic")


def items(setting: Setting) -> list[Item]:
    untuned = [
        Item(f"{name}, autotuning off", partial(exact, PROGRAMS[name]), environment=NOT_TUNED) for name in UNTUNED
    ]
    return [*(Item(name, partial(exact, work)) for name, work in PROGRAMS.items()), *untuned]
