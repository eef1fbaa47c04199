"""Fake quantization: rounding to what a quantized tensor would hold, with the mask that its gradient needs. Products of
quantized matrices."""

from __future__ import annotations

import struct
from collections.abc import Sequence

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


@decomposition("_scaled_mm")
def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """``scale_a``, ``scale_b``: of the whole matrices, or (m, 1) and (1, n), of their rows and columns. A float8 result
    that was asked for is divided by ``scale_result``."""
    product = (a.float() @ b.float()) * scale_a * scale_b
    if bias is not None:
        product = product + bias.float()
    if scale_result is not None and out_dtype is not None and out_dtype.itemsize == 1:
        product = product / scale_result
    return product.to(out_dtype or a.dtype)


WHOLE, ROWS = 0, 1  # torch.nn.functional.ScalingType.TensorWise and RowWise


@decomposition("_scaled_mm_v2")
def scaled_mm_v2(
    a: Tensor,
    b: Tensor,
    scale_a: list[Tensor],
    recipe_a: list[int],
    swizzle_a: list[int],
    scale_b: list[Tensor],
    recipe_b: list[int],
    swizzle_b: list[int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """``torch.nn.functional.scaled_mm`` with one scale a matrix, or one a row of ``a`` and a column of ``b``."""
    recipes = [*recipe_a, *recipe_b]
    if recipes not in ([WHOLE, WHOLE], [ROWS, ROWS]) or any((*swizzle_a, *swizzle_b)) or contraction_dim:
        raise NotImplementedError("scales of blocks, swizzled scales and contraction_dim")
    rows, columns = scale_a[0].reshape(-1, 1), scale_b[0].reshape(1, -1)  # of one element where they are of the whole
    return scaled_mm(a, b, rows, columns, bias, None, out_dtype)


@decomposition("_weight_int8pack_mm")
def weight_int8pack_mm(a: Tensor, b: Tensor, scales: Tensor) -> Tensor:
    """``a`` (m, k) times the int8 matrix ``b`` (n, k), each row of which has a scale."""
    return ((a.float() @ b.float().t()) * scales.float()).to(a.dtype)
