"""The device, lazily, with a policy of compiling (docs/environment.md)."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

import torch_pjrt
from torch_pjrt import _C
from zoo.entries import Prepared
from zoo.model import Built
from zoo.reference import infer, step_of


def moved(made: Built) -> Built:
    """Returns the module and its arguments on the device."""
    args, kwargs = tree_map(lambda x: x.to("pjrt") if isinstance(x, torch.Tensor) else x, (made.args, made.kwargs))
    return Built(made.module.to("pjrt"), args, kwargs)


def wait() -> None:
    torch_pjrt.sync()
    torch.pjrt.synchronize()


def prepare(made: Built, what: str, policy: str) -> Prepared:
    _C.set_compile_policy(policy)
    here = moved(made)
    if what == "forward":
        return Prepared(lambda: infer(here), here, wait)
    step: Any = step_of(here)
    return Prepared(lambda: step(*here.args, **here.kwargs), here, wait)
