"""Dtypes, and conversions between concrete arrays and tensors, which share memory where both sides can use it.

JAX's arrays are immutable. A tensor over an array's memory therefore copies it before its first write, and a tensor
that was passed to JAX copies its memory before its next write (``src/device/host/shared_memory.h``). Both are counted
in ``torch_pjrt.metrics()["copies_on_write"]``.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import torch

from torch_pjrt import _C
from torch_pjrt.jax import _compat

NAMES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "bfloat16", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu",
)  # fmt: skip
TO_TORCH: dict[Any, torch.dtype] = {
    jax.numpy.dtype(name): getattr(torch, name) for name in NAMES if hasattr(torch, name) and hasattr(jax.numpy, name)
}
TO_JAX = {dtype: name for name, dtype in TO_TORCH.items()}
NARROW = {
    torch.int64: torch.int32, torch.uint64: torch.uint32, torch.float64: torch.float32,
    torch.complex128: torch.complex64,
}  # fmt: skip


def is_differentiable(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def conjugated(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the conjugate: torch's gradients of complex numbers are the conjugates of JAX's."""
    return tensor.conj().resolve_conj() if tensor.is_complex() else tensor


def torch_dtype(dtype: Any, what: str) -> torch.dtype:
    found = TO_TORCH.get(dtype)
    if found is None:
        cure = "give jax.random.key_data(key), or key= to draw from it" if "key" in str(dtype) else "convert it first"
        raise TypeError(f"{what} is of dtype {dtype}, which torch has no tensors of: {cure}")
    return found


def jax_dtype(dtype: torch.dtype, what: str) -> Any:
    """Returns JAX's dtype. Raises TypeError if JAX lacks it, as 64-bit types by default."""
    if dtype not in TO_JAX:
        raise TypeError(f"{what} is of dtype {dtype}, which JAX has no arrays of: convert it first")
    if dtype in NARROW and not _compat.has_x64():
        raise TypeError(
            f"{what} is of dtype {dtype}, and JAX has no 64-bit types unless it is told to: "
            "jax.config.update('jax_enable_x64', True), convert it, or let dtypes='jax' convert it to "
            f"{NARROW[dtype]}"
        )
    return TO_JAX[dtype]


def narrowed(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor in the dtype of ``dtypes="jax"``."""
    return tensor if _compat.has_x64() or tensor.dtype not in NARROW else tensor.to(NARROW[tensor.dtype])


def to_torch(array: Any, what: str = "the array") -> torch.Tensor:
    """Returns a concrete array as a tensor on the same device."""
    torch_dtype(array.dtype, what)
    if not isinstance(array, jax.Array):
        return torch.from_numpy(np.array(array))
    if len(array.devices()) != 1:
        raise ValueError(
            f"{what} is spread over {len(array.devices())} devices, and a tensor is on one: under jax.jit it is "
            "sharded as JAX decides; here give one shard (array.addressable_shards[i].data), or jax.device_get(array)"
        )
    try:
        shared = _compat.exported(array)
    except Exception as error:
        (device,) = array.devices()
        if device.platform == "cpu":
            raise
        raise ValueError(
            f"{what} is on {device}, which this PyTorch has no tensors on: under jax.jit torch code runs wherever JAX "
            "does; here take it to the host first, jax.device_put(array, jax.devices('cpu')[0])"
        ) from error
    protected: torch.Tensor | None = _C.write_protected(shared)
    return shared.clone() if protected is None else protected


def to_jax(tensor: torch.Tensor, what: str = "the tensor") -> jax.Array:
    """Returns a tensor with values as an array on the same device."""
    if tensor.requires_grad:
        raise ValueError(
            f"{what} requires grad, and JAX does not see torch's gradients: give tensor.detach(), or call the JAX "
            "function with torch_pjrt.jax.call_jax, through which torch differentiates"
        )
    jax_dtype(tensor.dtype, what)
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.device.type == "pjrt":
        tensor = _C.host_view(tensor.contiguous()) if _C.is_host_memory() else tensor.cpu()
        return _compat.imported(tensor)
    if not _compat.has_device(tensor.device.type):
        raise ValueError(
            f"{what} is on '{tensor.device}', which this JAX has no arrays on (pip install 'jax[cuda13]'): give "
            "tensor.cpu()"
        )
    if not tensor.is_contiguous():
        return _compat.imported(tensor.contiguous())
    kept: torch.Tensor | None = _C.snapshot(tensor)
    return _compat.imported(tensor.clone() if kept is None else kept)


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Returns the values in JAX's dtype of the same name, with 64-bit types unchanged."""
    host = tensor.detach().cpu().contiguous()
    name = str(host.dtype).removeprefix("torch.")
    if host.dtype in (torch.bfloat16,) or name.startswith("float8"):
        bits: np.ndarray[Any, Any] = host.view(torch.uint16 if host.itemsize == 2 else torch.uint8).numpy()
        return bits.view(TO_JAX[host.dtype])
    return np.asarray(host.numpy())
