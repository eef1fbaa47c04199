"""Hugging Face's accelerate: ``Accelerator()``, its mixed precision and checkpoints, and ``device_map="auto"``."""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

import torch

import torch_pjrt
from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.libraries.choice import is_available, tell
from torch_pjrt.libraries.words import around, of_this_device, or_out_of_memory


def _state(module: ModuleType) -> None:
    default = module.PartialState.default_device
    of_this_device(default)

    def default_device(self: Any) -> torch.device:
        device: torch.device = default.fget(self)
        if device.type == "pjrt":
            tell("accelerate")
        return device

    module.PartialState.default_device = property(functools.wraps(default.fget)(default_device))
    around(module.PartialState, "__init__", _alone)


def _alone(inner: Any) -> Any:
    """A single process that ``torchrun`` started needs no collectives, of which this device has none."""

    def init(self: Any, cpu: bool = False, **kwargs: Any) -> None:
        named = os.environ.get("ACCELERATE_TORCH_DEVICE", "pjrt")
        of_torchrun = os.environ.get("LOCAL_RANK") == "0" and os.environ.get("WORLD_SIZE") == "1"
        if not of_torchrun or cpu or not named.startswith("pjrt") or not is_available():
            return inner(self, cpu, **kwargs)
        rank = os.environ.pop("LOCAL_RANK")
        try:
            return inner(self, cpu, **kwargs)
        finally:
            os.environ["LOCAL_RANK"] = rank

    return init


def _accelerator(module: ModuleType) -> None:
    of_this_device(module.Accelerator.__init__)  # devices that may have float16


def _checkpointing(module: ModuleType) -> None:
    for function in (module.save_accelerator_state, module.load_accelerator_state):
        of_this_device(function, is_pjrt_available=is_available)


def _modeling(module: ModuleType) -> None:
    for function in (module.get_grad_scaler, module.get_max_memory, module.get_balanced_memory):
        of_this_device(function)


def _memory(module: ModuleType) -> None:
    def with_all_its_work(inner: Any) -> Any:
        def find(function: Any = None, *arguments: Any, **options: Any) -> Any:
            if function is None:
                return functools.partial(find, *arguments, **options)

            @functools.wraps(function)
            def run(*args: Any, **kwargs: Any) -> Any:
                result = function(*args, **kwargs)
                torch_pjrt.sync()  # what it has recorded may be too much too
                return result

            return inner(run, *arguments, **options)

        return find

    around(module, "should_reduce_batch_size", or_out_of_memory)
    around(module, "find_executable_batch_size", with_all_its_work)


def install(package: str) -> None:
    after_import(f"{package}.state", _state)
    after_import(f"{package}.accelerator", _accelerator)
    after_import(f"{package}.checkpointing", _checkpointing)
    after_import(f"{package}.utils.modeling", _modeling)
    after_import(f"{package}.utils.memory", _memory)
