"""The device's interface for Dynamo and other callers of ``torch._dynamo.device_interface``."""

from __future__ import annotations

import torch
from torch._dynamo.device_interface import DeviceInterface

from torch_pjrt.device import memory, module as device_module
from torch_pjrt.device.accelerator import ours


class PjrtInterface(DeviceInterface):
    """``torch.pjrt`` without streams: Dynamo would capture them in graphs, where they mean nothing to XLA."""

    device = device_module.device
    current_device = staticmethod(device_module.current_device)
    set_device = staticmethod(device_module.set_device)
    device_count = staticmethod(device_module.device_count)
    is_available = staticmethod(device_module.is_available)
    synchronize = staticmethod(device_module.synchronize)
    get_device_properties = staticmethod(device_module.get_device_properties)
    get_compute_capability = staticmethod(device_module.get_device_capability)
    memory_allocated = staticmethod(memory.memory_allocated)

    @staticmethod
    def exchange_device(device: int) -> int:
        before = device_module.current_device()
        device_module.set_device(device)
        return before

    @staticmethod
    def maybe_exchange_device(device: int) -> int:
        return PjrtInterface.exchange_device(device) if device >= 0 else -1

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return device_module.is_bf16_supported(including_emulation)

    @classmethod
    def is_dtype_supported(cls, dtype: torch.dtype, including_emulation: bool = False) -> bool:
        with ours():
            return dtype in torch.accelerator.get_device_capability()["supported_dtypes"]
