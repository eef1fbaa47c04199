"""DLPack in both directions, without a copy where the device computes in the host's memory.

Values of a device are immutable: a write to a pjrt tensor makes a new value. Memory shared through DLPack is the
exception, because its other holders may write to it:

- An **exported** tensor has the value of the time of the export. The consumer doesn't see later writes to the pjrt
  tensor, and the memory stays unchanged for as long as the consumer holds it. A consumer of DLPack 1.0 receives it
  marked read-only (NumPy then makes a read-only array). A consumer that writes to it nevertheless
  (``torch.from_dlpack`` makes a writable tensor) changes the values of pjrt tensors and of running programs, unseen by
  autograd.
- **NumPy's array of a tensor** (``np.asarray(tensor)``) is exported memory, too, and read-only.
- An **imported** tensor (``torch_pjrt.from_dlpack``) reads the memory when a program runs. The device never writes to
  it. A write by anybody else changes the pjrt tensor's value, also for calls that were recorded before.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.device.streams import _device
from torch_pjrt.program.subclasses import is_subclass, leaves_of


def from_dlpack(array: Any, *, device: Any = None, copy: bool | None = None) -> torch.Tensor:
    """Makes a pjrt tensor of an array in the host's memory, such as a NumPy or JAX array or a CPU tensor.

    The memory is used in place if the device computes in the host's memory and the array is dense and aligned to 64
    bytes; otherwise it is copied. Programs read memory that is used in place when they run, and never write to it.
    **A later write to the array changes the tensor's value**, also for calls that were recorded before: pass
    ``copy=True`` if the array will be written. Example: ``x = torch_pjrt.from_dlpack(np.ones((2, 3)))``.

    Args:
        array: an object with ``__dlpack__``, or a capsule; any shape, and any dtype that DLPack and PyTorch share.
        device: an index, ``"pjrt:1"`` or a ``torch.device``. Default: the current device.
        copy: True always copies, False never copies, None copies only if the memory can't be used in place.

    Returns:
        A tensor of the array's shape and dtype on ``device``.

    Raises:
        BufferError: the array is not in the host's memory, or ``copy=False`` and a copy would be necessary.
        ValueError: ``device`` is not a pjrt device.
    """
    host = torch.from_dlpack(array)
    index = _device(device).index
    if host.device.type != "cpu":
        raise BufferError(
            f"from_dlpack takes arrays in the host's memory, this one is on {host.device}; use tensor.to()"
        )
    if copy:
        return host.to(torch.device("pjrt", index))
    borrowed = _C.borrow(host, index)
    if borrowed is not None:
        return borrowed
    if copy is None:
        return host.to(torch.device("pjrt", index))
    raise BufferError(
        "the device can't use this memory in place: it must be the host's, dense, and begin at a multiple of 64 bytes. "
        "Leave copy=None, or use copy=True, to copy it"
    )


def _check_host_memory() -> None:
    if not _C.is_host_memory():
        raise BufferError(
            "this device has a memory of its own, which DLPack has no name for; export tensor.cpu() instead"
        )


def _export(tensor: torch.Tensor, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    _check_memory(tensor)
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor.is_conj():
        raise BufferError("Can't export tensors with the conjugate bit set")
    _check_host_memory()
    host = _C.host_view(tensor.resolve_neg())
    capsule = _tensor_dlpack(host, max_version=max_version, dl_device=dl_device, copy=copy)
    if not copy and max_version is not None and max_version[0] >= 1:
        _C.mark_read_only(capsule)
    return capsule


def _is_ours(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.device.type == "pjrt"


def _check_memory(tensor: torch.Tensor) -> None:
    if is_subclass(tensor):
        names = ", ".join(f".{'.'.join(path)}" for path, _ in leaves_of(tensor))
        raise BufferError(
            f"a {type(tensor).__name__} has no memory of its own to export: it is made of {names or 'no tensors'}; "
            "export these, or what it means as a plain tensor"
        )


def install() -> None:
    """Makes ``np.asarray``, ``__dlpack__``, ``torch.from_dlpack`` and ``torch.utils.dlpack`` take pjrt tensors."""
    global _tensor_dlpack
    _tensor_dlpack, to_dlpack = torch.Tensor.__dlpack__, torch.utils.dlpack.to_dlpack
    dlpack_device = torch.Tensor.__dlpack_device__

    def __dlpack__(
        self: torch.Tensor,
        *,
        stream: Any = -1,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        if _is_ours(self):
            if stream is not None and type(stream) is not int:
                raise TypeError("stream must be ``int`` or ``none``")
            return _export(self, max_version, dl_device, copy)
        return _tensor_dlpack(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self: torch.Tensor) -> Any:
        if not _is_ours(self):
            return dlpack_device(self)
        _check_host_memory()
        return torch.utils.dlpack.DLDeviceType.kDLCPU, 0

    def checked_to_dlpack(tensor: torch.Tensor) -> Any:
        return _export(tensor, None, None, None) if _is_ours(tensor) else to_dlpack(tensor)

    to_array = torch.Tensor.__array__

    @functools.wraps(to_array)
    def __array__(self: torch.Tensor, dtype: Any = None, **options: Any) -> Any:
        if torch.overrides.has_torch_function_unary(self) or not _is_ours(self) or not _C.is_host_memory():
            return to_array(self, dtype, **options)
        if self.requires_grad or self.is_conj() or self.is_neg() or is_subclass(self):
            return to_array(self.cpu(), dtype, **options)  # raises PyTorch's own error, if any
        array = _C.host_view(self).numpy()
        array.flags.writeable = False
        if options.get("copy"):
            return array.astype(array.dtype if dtype is None else dtype)
        return array if dtype is None else array.astype(dtype, copy=False)

    torch.Tensor.__array__ = __array__
    torch.Tensor.__dlpack__ = __dlpack__
    torch.Tensor.__dlpack_device__ = __dlpack_device__
    torch.utils.dlpack.to_dlpack = checked_to_dlpack


_tensor_dlpack: Any = None
