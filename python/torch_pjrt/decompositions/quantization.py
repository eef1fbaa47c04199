"""Fake quantization: rounding to what a quantized tensor would hold, with the mask that its gradient needs. Products of
quantized matrices."""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition


def _single(x: float) -> float:
    """The number as the CPU's kernels hold it, in single precision."""
    return struct.unpack("f", struct.pack("f", x))[0]


def _fake_quantize(
    x: Tensor, scale: Tensor | float, inverse: Tensor | float, zero_point: Tensor | int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if isinstance(zero_point, Tensor) and zero_point.is_floating_point():
        place = (wide * inverse + zero_point).round()
    else:
        place = (wide * inverse).round() + zero_point
    held = torch.where(place.isnan(), low, place).clamp(low, high)
    return ((held - zero_point) * scale).to(x.dtype), (place >= low) & (place <= high)


@decomposition("fake_quantize_per_tensor_affine_cachemask", meta=True)
def per_tensor(x: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int) -> tuple[Tensor, Tensor]:
    scale = _single(scale)
    return _fake_quantize(x, scale, _single(1 / scale), zero_point, quant_min, quant_max)


@decomposition("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", meta=True)
def per_tensor_of_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    scale, zero_point, on = (y.reshape(()) for y in (scale, zero_point, fake_quant_enabled))
    quantized, mask = _fake_quantize(x, scale, scale.reciprocal(), zero_point, quant_min, quant_max)
    return torch.where(on != 0, quantized, x), mask | (on == 0)


@decomposition("fake_quantize_per_channel_affine_cachemask", meta=True)
def per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    shape = [-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())]
    scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
    return _fake_quantize(x, scale, scale.reciprocal(), zero_point, quant_min, quant_max)


@decomposition("_weight_int8pack_mm")
def weight_int8pack_mm(a: Tensor, b: Tensor, scales: Tensor) -> Tensor:
    """``a`` (m, k) times the int8 matrix ``b`` (n, k), each row of which has a scale."""
    return ((a.float() @ b.float().t()) * scales.float()).to(a.dtype)
