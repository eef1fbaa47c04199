"""Hugging Face's transformers: its ``Trainer`` and ``pipeline()``. Its ``Trainer`` runs on an ``Accelerator``.

Its masks read their values unless a graph is captured, as ``compile_step`` and ``jit`` do.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.libraries.adaptation import Adaptation
from torch_pjrt.libraries.choice import is_available, tell


def _import_utils(library: Adaptation, module: ModuleType) -> None:
    library.of_this_device(module.is_torch_bf16_gpu_available)
    module.is_torch_bf16_gpu_available.cache_clear()

    def or_traced(inner: Any) -> Any:
        def is_capturing() -> bool:
            return _C.tracing() or inner()

        return is_capturing

    library.around(module, "is_cuda_stream_capturing", or_traced)


def _training_args(library: Adaptation, module: ModuleType) -> None:
    setup = module.TrainingArguments._setup_devices
    library.of_this_device(setup)

    def as_its_accelerator(inner: Any) -> Any:
        def setup_devices(self: Any) -> torch.device:
            device: torch.device = inner(self)
            chosen: torch.device = self.distributed_state.device
            if device.type == "pjrt" and chosen.type != "pjrt":  # by ACCELERATE_USE_CPU or ACCELERATE_TORCH_DEVICE
                self._n_gpu = 0
                return chosen
            return device

        return setup_devices

    library.around(setup, "func", as_its_accelerator)


def _trainer(library: Adaptation, module: ModuleType) -> None:
    for function in (module.Trainer._save_rng_state, module.Trainer._load_rng_state):
        library.of_this_device(function)


def _trainer_utils(library: Adaptation, module: ModuleType) -> None:
    tracker = module.TrainerMemoryTracker
    for function in (tracker.__init__, tracker.start, tracker.stop):
        library.of_this_device(function, is_torch_pjrt_available=is_available)


def _pipelines(library: Adaptation, module: ModuleType) -> None:
    library.of_this_device(module.Pipeline.__init__, is_torch_pjrt_available=is_available)
    library.of_this_device(module.Pipeline.device_placement)

    def told(inner: Any) -> Any:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            inner(self, *arguments, **options)
            if self.device.type == "pjrt":
                tell("transformers")

        return init

    library.around(module.Pipeline, "__init__", told)


def _distributed(library: Adaptation, module: ModuleType) -> None:
    backends = module.DISTRIBUTED_BACKEND_MAP
    if "pjrt" not in backends:
        backends["pjrt"] = "pjrt"
        library.undo_by(lambda: backends.pop("pjrt"))


def install(library: Adaptation, package: str) -> None:
    library.after_import(f"{package}.utils.import_utils", _import_utils)
    library.after_import(f"{package}.distributed.utils", _distributed)
    library.after_import(f"{package}.training_args", _training_args)
    library.after_import(f"{package}.trainer", _trainer)
    library.after_import(f"{package}.trainer_utils", _trainer_utils)
    library.after_import(f"{package}.pipelines.base", _pipelines)
