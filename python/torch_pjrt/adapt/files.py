"""Patches for ``torch.save``, ``pickle`` and safetensors, which don't know the device."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt.adapt.after_import import after_import


def _store_through_the_host() -> None:
    """Sends storages through the host in the legacy file format.

    That format, which ``pickle`` uses, reads and writes a storage's memory by its address, and addresses of this device
    have no memory. The zip format, torch's default, uses ``storage.cpu()`` by itself.
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


class _Opened:
    """A file, or a slice of one, that safetensors has opened on the host; its tensors are moved to the device."""

    def __init__(self, opened: Any, device: torch.device) -> None:
        self._opened, self._device = opened, device

    def _moved(self, value: Any) -> Any:
        return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(self._device), value)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._opened, name)
        return (lambda *args, **kwargs: self._moved(found(*args, **kwargs))) if callable(found) else found

    def get_slice(self, name: str) -> _Opened:
        return _Opened(self._opened.get_slice(name), self._device)

    def __getitem__(self, index: Any) -> Any:
        return self._moved(self._opened[index])

    def __enter__(self) -> _Opened:
        self._opened.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._opened.__exit__(*raised)


def _name_the_device_to_safetensors(safetensors: ModuleType) -> None:
    """Wraps ``safetensors.safe_open``, which has a list of device names."""
    safe_open = safetensors.safe_open

    def named(filename: Any, framework: str, device: Any = "cpu", **kwargs: Any) -> Any:
        if str(device).partition(":")[0] != "pjrt":
            return safe_open(filename, framework, device, **kwargs)
        return _Opened(safe_open(filename, framework, "cpu", **kwargs), torch.device(device))

    # An imported safetensors.torch holds the function under its own name; a later import takes the new one.
    for module in (safetensors, sys.modules.get("safetensors.torch")):
        if hasattr(module, "safe_open"):
            setattr(module, "safe_open", named)  # noqa: B010


def install() -> None:
    _store_through_the_host()
    after_import("safetensors", _name_the_device_to_safetensors)
