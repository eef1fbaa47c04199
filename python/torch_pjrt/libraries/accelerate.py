"""Hugging Face's accelerate: ``Accelerator()``, its mixed precision and checkpoints, and ``device_map="auto"``."""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.libraries.adaptation import Adaptation
from torch_pjrt.libraries.choice import is_available, tell
from torch_pjrt.libraries.words import or_out_of_memory


def _state(library: Adaptation, module: ModuleType) -> None:
    def told(inner: Any) -> Any:
        def default_device(self: Any) -> torch.device:
            device: torch.device = inner(self)
            if device.type == "pjrt":
                tell("accelerate")
            return device

        return default_device

    def of_several(inner: Any) -> Any:
        def prepare(
            self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None
        ) -> tuple[str | None, Any]:
            chosen, kind = inner(self, cpu, sagemaker_dp, backend)
            return "pjrt" if chosen == "nccl" else chosen, kind

        return prepare

    def set_up(inner: Any) -> Any:
        def set_device(self: Any) -> None:
            inner(self)
            if self.device.type == "pjrt" and self.num_processes > 1:
                tell("accelerate")

        return set_device

    state = module.PartialState
    for function in (state.default_device, state._prepare_backend, state.set_device):
        library.of_this_device(function)
    library.around(state, "default_device", told)
    library.around(state, "_prepare_backend", of_several)
    library.around(state, "set_device", set_up)
    library.around(state, "__init__", _alone)


def _alone(inner: Any) -> Any:
    """Makes a single process that ``torchrun`` started non-distributed: each collective would split a step."""

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


def _accelerator(library: Adaptation, module: ModuleType) -> None:
    library.of_this_device(module.Accelerator.__init__)  # it lists devices for float16


def _checkpointing(library: Adaptation, module: ModuleType) -> None:
    for function in (module.save_accelerator_state, module.load_accelerator_state):
        library.of_this_device(function, is_pjrt_available=is_available)


def _modeling(library: Adaptation, module: ModuleType) -> None:
    for function in (module.get_grad_scaler, module.get_max_memory, module.get_balanced_memory):
        library.of_this_device(function)


def _memory(library: Adaptation, module: ModuleType) -> None:
    def with_all_its_work(inner: Any) -> Any:
        def find(function: Any = None, *arguments: Any, **options: Any) -> Any:
            if function is None:
                return functools.partial(find, *arguments, **options)

            @functools.wraps(function)
            def run(*args: Any, **kwargs: Any) -> Any:
                result = function(*args, **kwargs)
                _C.start_all("torch_pjrt.sync")  # recorded calls may also need too much memory
                return result

            return inner(run, *arguments, **options)

        return find

    library.around(module, "should_reduce_batch_size", or_out_of_memory)
    library.around(module, "find_executable_batch_size", with_all_its_work)


def install(library: Adaptation, package: str) -> None:
    library.after_import(f"{package}.state", _state)
    library.after_import(f"{package}.accelerator", _accelerator)
    library.after_import(f"{package}.checkpointing", _checkpointing)
    library.after_import(f"{package}.utils.modeling", _modeling)
    library.after_import(f"{package}.utils.memory", _memory)
