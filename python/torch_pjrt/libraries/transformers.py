"""Hugging Face's transformers: its ``Trainer`` and ``pipeline()``. Its ``Trainer`` runs on an ``Accelerator``.

Its masks read their values unless a graph is captured, as ``compile_step`` and ``jit`` do.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.libraries.adaptation import Adaptation
from torch_pjrt.libraries.choice import announce, is_available, load_random_states, save_random_states


def _import_utils(library: Adaptation, module: ModuleType) -> None:
    def or_here(inner: Any) -> Any:
        def is_bf16_available() -> bool:
            return is_available() or inner()

        return is_bf16_available

    def or_traced(inner: Any) -> Any:
        def is_capturing() -> bool:
            return _C.tracing() or inner()

        return is_capturing

    library.around(module, "is_torch_bf16_gpu_available", or_here)
    library.around(module, "is_cuda_stream_capturing", or_traced)


def _training_args(library: Adaptation, module: ModuleType) -> None:
    def as_its_accelerator(inner: Any) -> Any:
        def setup_devices(self: Any) -> torch.device:
            device: torch.device = inner(self)
            chosen: torch.device = self.distributed_state.device
            if device.type != "cpu" or chosen.type != "pjrt":
                return device
            self._n_gpu = torch.pjrt.device_count()
            torch.pjrt.set_device(0)
            return torch.device("pjrt", 0)

        return setup_devices

    library.around(module.TrainingArguments._setup_devices, "func", as_its_accelerator)


def _trainer(library: Adaptation, module: ModuleType) -> None:
    def saved(inner: Any) -> Any:
        def save_rng_state(self: Any, output_dir: str) -> None:
            inner(self, output_dir)
            if self.args.device.type == "pjrt":
                save_random_states(output_dir, self.args.process_index)

        return save_rng_state

    def loaded(inner: Any) -> Any:
        def load_rng_state(self: Any, checkpoint: str | None) -> None:
            inner(self, checkpoint)
            if checkpoint is not None and self.args.device.type == "pjrt":
                load_random_states(checkpoint, self.args.process_index)

        return load_rng_state

    library.around(module.Trainer, "_save_rng_state", saved)
    library.around(module.Trainer, "_load_rng_state", loaded)


def _trainer_utils(library: Adaptation, module: ModuleType) -> None:
    """Makes the Trainer's tracker of memory count the device's, too."""

    def of_caller(inner: Any) -> Any:
        def derive_stage(self: Any) -> str:
            frame = sys._getframe(1)
            while frame.f_code.co_name not in self.stages and frame.f_back is not None:
                frame = frame.f_back
            stage: str = self.stages[frame.f_code.co_name]
            return stage

        return derive_stage

    def started(inner: Any) -> Any:
        def start(self: Any) -> None:
            inner(self)
            if self.skip_memory_metrics or not is_available() or self.cur_stage != self.derive_stage():
                return
            torch.pjrt.reset_peak_memory_stats()
            self.pjrt = vars(self).get("pjrt", {}) | {self.cur_stage: {"begin": torch.pjrt.memory_allocated()}}

        return start

    def stopped(inner: Any) -> Any:
        def stop(self: Any, stage: str) -> None:
            inner(self, stage)
            counted = vars(self).get("pjrt", {}).get(stage)
            if counted is not None and self.cur_stage is None:
                now, peak = torch.pjrt.memory_allocated(), torch.pjrt.max_memory_allocated()
                counted.update(end=now, alloc=now - counted["begin"], peaked=max(0, peak - now))

        return stop

    def updated(inner: Any) -> Any:
        def update_metrics(self: Any, stage: str, metrics: dict[str, Any]) -> None:
            counted = vars(self).get("pjrt")
            if counted is None:
                inner(self, stage, metrics)
                return
            self.torch, self.gpu = torch, counted
            try:
                inner(self, stage, metrics)
            finally:
                self.torch = None

        return update_metrics

    tracker = module.TrainerMemoryTracker
    library.around(tracker, "derive_stage", of_caller)
    library.around(tracker, "start", started)
    library.around(tracker, "stop", stopped)
    library.around(tracker, "update_metrics", updated)


def _pipelines(library: Adaptation, module: ModuleType) -> None:
    def placed(inner: Any) -> Any:
        signature = inspect.signature(inner)

        def init(self: Any, *arguments: Any, **options: Any) -> None:
            call = signature.bind(self, *arguments, **options)
            device = call.arguments.get("device")
            devices = getattr(call.arguments["model"], "hf_device_map", None)
            if devices is None and is_available():
                if device is None:
                    device = 0
                if isinstance(device, int) and device >= 0:
                    call.arguments["device"] = torch.device("pjrt", device)
            inner(*call.args, **call.kwargs)
            first = next(iter(devices.values())) if devices else None
            if isinstance(first, int) and is_available():
                self.device = torch.device("pjrt", first)
            if self.device.type == "pjrt":
                announce("transformers")

        return init

    def on_device(inner: Any) -> Any:
        def device_placement(self: Any) -> Any:
            return torch.pjrt.device(self.device) if self.device.type == "pjrt" else inner(self)

        return device_placement

    library.around(module.Pipeline, "__init__", placed)
    library.around(module.Pipeline, "device_placement", on_device)


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
