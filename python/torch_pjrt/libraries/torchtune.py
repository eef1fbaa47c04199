"""torchtune: recipes whose configuration names no device, or this one."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from torch_pjrt.libraries import choice
from torch_pjrt.libraries.adaptation import Adaptation


def _device(library: Adaptation, module: ModuleType) -> None:
    def else_ours(inner: Any) -> Any:
        def device_type() -> str:
            chosen: str = inner()
            return "pjrt" if chosen == "cpu" and choice.is_available() else chosen

        return device_type

    def and_ours(inner: Any) -> Any:
        def from_type(device_type: str) -> Any:
            if device_type != "pjrt":
                return inner(device_type)
            return SimpleNamespace(device_type="pjrt", device_name="PJRT", communication_backend="pjrt")

        return from_type

    def of_this_process(inner: Any) -> Any:
        def get_device(device: str | None = None) -> torch.device:
            chosen = torch.device(device or module._get_device_type_from_env())
            if chosen.type != "pjrt":
                found: torch.device = inner(device)
                return found
            choice.announce("torchtune")
            own = module._setup_device(chosen)
            module._validate_device_from_env(own)
            return own

        return get_device

    library.around(module, "_get_device_type_from_env", else_ours)
    library.around(module.DeviceSupport, "from_type", and_ours)
    library.around(module, "get_device", of_this_process)


def _precision(library: Adaptation, module: ModuleType) -> None:
    library.around(module, "verify_bf16_support", lambda inner: lambda: choice.is_available() or inner())


def _distributed(library: Adaptation, module: ModuleType) -> None:
    def of_our_device(inner: Any) -> Any:
        def backend(device_type: Any, offload_ops_to_cpu: bool = False) -> str:
            ours = device_type is None and choice.is_available()
            found: str = inner("pjrt" if ours else device_type, offload_ops_to_cpu)
            return found

        return backend

    library.around(module, "get_distributed_backend", of_our_device)


def install(library: Adaptation, package: str) -> None:
    library.after_import(f"{package}.utils._device", _device)
    library.after_import(f"{package}.training.precision", _precision)
    library.after_import(f"{package}.training._distributed", _distributed)
