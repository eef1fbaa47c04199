"""Hugging Face's accelerate: ``Accelerator()``, its mixed precision and checkpoints, and ``device_map="auto"``."""

from __future__ import annotations

import functools
import os
import threading
from types import ModuleType
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.libraries.adaptation import Adaptation, or_out_of_memory
from torch_pjrt.libraries.choice import announce, is_available, load_random_states, save_random_states


def _state(library: Adaptation, module: ModuleType) -> None:
    def else_ours(inner: Any) -> Any:
        def default_device(self: Any) -> torch.device:
            device: torch.device = inner(self)
            if device.type != "cpu" or not is_available():
                return device
            announce("accelerate")
            return torch.device("pjrt")

        return default_device

    def of_several(inner: Any) -> Any:
        def prepare(
            self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None
        ) -> tuple[str | None, Any]:
            chosen, kind = inner(self, cpu, sagemaker_dp, backend)
            of_a_launcher = int(os.environ.get("LOCAL_RANK", -1)) != -1
            if of_a_launcher and not cpu and kind == module.DistributedType.NO and is_available():
                return backend or "pjrt", module.DistributedType.MULTI_GPU
            return chosen, kind

        return prepare

    def set_up(inner: Any) -> Any:
        def set_device(self: Any) -> None:
            if self.device is None and self.distributed_type == module.DistributedType.MULTI_GPU and is_available():
                self.device = torch.device("pjrt", self.local_process_index % torch.pjrt.device_count())
                torch.pjrt.set_device(self.device)
                announce("accelerate")
            inner(self)

        return set_device

    state = module.PartialState
    library.around(state, "default_device", else_ours)
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
    making = threading.local()

    def without_float16(inner: Any) -> Any:
        """Hides float16 from ``Accelerator.__init__``, whose list of devices for it lacks this one."""

        def mixed_precision(self: Any) -> str:
            precision: str = inner(self)
            hidden = precision == "fp16" and self.device.type == "pjrt" and getattr(making, "now", False)
            return "no" if hidden else precision

        return mixed_precision

    def with_scaler_and_states(inner: Any) -> Any:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            making.now = True
            try:
                inner(self, *arguments, **options)
            finally:
                making.now = False
            if self.device.type != "pjrt":
                return
            if self.mixed_precision == "fp16":
                self.native_amp = True
                kwargs = self.scaler_handler.to_kwargs() if self.scaler_handler is not None else {}
                self.scaler = (
                    module.get_fsdp2_grad_scaler(device="pjrt", **kwargs)
                    if self.is_fsdp2
                    else module.get_grad_scaler(self.distributed_type, **kwargs)
                )
            self.register_save_state_pre_hook(
                lambda models, weights, folder: save_random_states(folder, self.process_index)
            )
            self.register_load_state_pre_hook(lambda models, folder: load_random_states(folder, self.process_index))

        return init

    library.around(module.AcceleratorState, "mixed_precision", without_float16)
    library.around(module.Accelerator, "__init__", with_scaler_and_states)


def _modeling(library: Adaptation, module: ModuleType) -> None:
    def of_this_device(inner: Any) -> Any:
        def get_grad_scaler(distributed_type: Any = None, **kwargs: Any) -> Any:
            if not is_available() or distributed_type == module.DistributedType.FSDP:
                return inner(distributed_type, **kwargs)
            return torch.amp.GradScaler("pjrt", **kwargs)

        return get_grad_scaler

    def of_these_devices(inner: Any) -> Any:
        def get_max_memory(max_memory: Any = None) -> Any:
            if not is_available():
                return inner(max_memory)
            if max_memory is None:
                free = {index: torch.pjrt.mem_get_info(index)[0] for index in range(torch.pjrt.device_count())}
                return free if torch.pjrt.get_device_properties().is_host_memory else free | inner()
            others = inner({name: size for name, size in max_memory.items() if not isinstance(name, int)})
            ours = {index: max_memory[index] for index in sorted(max_memory.keys() - others.keys())}
            to_bytes = module.convert_file_size_to_int
            return {index: to_bytes(size) if isinstance(size, str) else size for index, size in ours.items()} | others

        return get_max_memory

    library.around(module, "get_grad_scaler", of_this_device)
    library.around(module, "get_max_memory", of_these_devices)


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
    library.after_import(f"{package}.utils.modeling", _modeling)
    library.after_import(f"{package}.utils.memory", _memory)
