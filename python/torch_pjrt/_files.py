"""Files: what of ``torch.save``, ``pickle`` and safetensors doesn't find its way to the device by itself."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch


def _store_through_the_host() -> None:
    """The legacy file format, which ``pickle`` uses, reads and writes a storage's memory by its address.

    Here that is a number without memory behind it. The zip format, torch's default, goes through ``storage.cpu()`` by
    itself.
    """
    storage = torch.UntypedStorage
    write_file, set_from_file = storage._write_file, storage._set_from_file

    def _write_file(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        return write_file(self.cpu() if self.device.type == "pjrt" else self, *args, **kwargs)

    def _set_from_file(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if self.device.type != "pjrt":
            return set_from_file(self, *args, **kwargs)
        host = self.cpu()
        set_from_file(host, *args, **kwargs)
        self.resize_(host.nbytes())
        return self.copy_(host)

    storage._write_file, storage._set_from_file = _write_file, _set_from_file


def _name_the_device_to_safetensors() -> None:
    """``safetensors.safe_open`` has a list of device names, but takes an index for whatever torch's accelerator is."""
    if importlib.util.find_spec("safetensors") is None:
        return
    import safetensors

    safe_open = safetensors.safe_open

    def named(filename: Any, framework: str, device: Any = "cpu", **kwargs: Any) -> Any:
        if str(device).partition(":")[0] == "pjrt":
            index = torch.device(device).index
            device = torch.pjrt.current_device() if index is None else index
        return safe_open(filename, framework, device, **kwargs)

    # Where safetensors.torch came first, it holds the function by itself; else it takes this one.
    for module in (safetensors, sys.modules.get("safetensors.torch")):
        if hasattr(module, "safe_open"):
            setattr(module, "safe_open", named)  # noqa: B010


def install() -> None:
    _store_through_the_host()
    _name_the_device_to_safetensors()
