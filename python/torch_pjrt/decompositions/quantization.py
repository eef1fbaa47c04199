"""Fake quantization, which rounds to values of a quantized tensor and returns the mask of its gradient; products of
quantized matrices, and products with a wider result."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._meta_registrations import meta_scaled_grouped_mm
from torch.nn.functional import pad

from torch_pjrt.decompositions.table import composition, decomposition, meta


def _single(x: float) -> float:
    """Rounds a scalar to single precision, as the CPU's kernels do."""
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
    """Multiplies ``a`` (m, k) by the int8 matrix ``b`` (n, k), each of whose rows has a scale."""
    return ((a.float() @ b.float().t()) * scales.float()).to(a.dtype)


@meta("baddbmm.dtype")
def baddbmm_meta(
    self: Tensor, batch1: Tensor, batch2: Tensor, out_dtype: torch.dtype, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Checks as PyTorch's kernels do; its own Meta kernel passes the dtype as ``beta``."""
    result = torch.bmm(batch1, batch2, out_dtype=out_dtype)
    torch._check(
        self.dtype in (out_dtype, batch1.dtype),
        lambda: f"baddbmm: self must be {out_dtype}, or {batch1.dtype} as the matrices are, not {self.dtype}",
    )
    self.expand(result.shape)
    return result


@meta("baddbmm.dtype_out")
def baddbmm_out_meta(*args: Tensor, out: Tensor, **options: float) -> Tensor:
    result = torch.ops.aten.baddbmm.dtype(*args, **options)
    torch._check(
        out.dtype == result.dtype, lambda: f"baddbmm: out must be {result.dtype}, as out_dtype says, not {out.dtype}"
    )
    return out.resize_(result.shape) if out.shape != result.shape else out


@meta("_scaled_mm.out")
def scaled_mm_out_meta(*args: Any, out: Tensor, **options: Any) -> Tensor:
    """The Meta kernel of the out variant, which PyTorch lacks."""
    result: Tensor = torch.ops.aten._scaled_mm.default(*args, **options)
    if out.dtype != result.dtype:  # without out_dtype, the CPU's kernel computes in out's dtype
        raise NotImplementedError("without out_dtype the product is of out's dtype")
    return out.resize_(result.shape) if out.shape != result.shape else out


def _of_groups(offs: Tensor, n: int) -> list[Tensor]:
    """Returns for each group a mask of the n positions that are in it."""
    at = torch.arange(n, dtype=offs.dtype, device=offs.device)
    group = at.unsqueeze(1).ge(offs).sum(1)
    return [group.eq(i) for i in range(offs.size(0))]


# MX scales (float8_e8m0fnu, one per 32 elements along the inner dimension) are in tiles of 128 rows by 4 blocks,
# padded, in which 4 rows are interleaved (SwizzleType.SWIZZLE_32_4_4). The tiles of a group follow those of the group
# before it.
MX = torch.float8_e8m0fnu
BLOCK, ROWS, ACROSS = 32, 128, 4
ONE = 127  # the bits of 1


def _in_tiles(scales: Tensor) -> Tensor:
    """Returns the tiles of the bits of a matrix (rows, blocks)."""
    rows, blocks = scales.shape
    scales = pad(scales, (0, -blocks % ACROSS, 0, -rows % ROWS))
    tiles = scales.view(-1, 4, 32, scales.size(1) // ACROSS, ACROSS).permute(0, 3, 2, 1, 4)
    return tiles.reshape(-1).view(MX)


def _group_starts(ends: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])


def _group_of(ends: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Returns for n positions their groups (the last group for positions after it) and their places in these."""
    at = torch.arange(n, dtype=ends.dtype, device=ends.device)
    group = at.unsqueeze(1).ge(ends).sum(1).clamp(max=ends.size(0) - 1)
    return group, at - _group_starts(ends)[group]


def _read_tiles(scales: Tensor, first: Tensor, across: Tensor | int, row: Tensor, block: Tensor) -> Tensor:
    """Returns the bits at these rows and blocks of tiles that begin at tile ``first``, with ``across`` tiles a row."""
    tile = first + row // ROWS * across + block // ACROSS
    inside = row % 32 * 16 + row % ROWS // 32 * ACROSS + block % ACROSS
    flat = scales.view(torch.uint8).reshape(-1)
    return flat[(tile * ROWS * ACROSS + inside).clamp(max=flat.size(0) - 1).long()]


def _tiles_of_rows(scales: Tensor, ends: Tensor, rows: int, k: int) -> Tensor:
    """Returns the scales of a matrix (rows, k) in tiles of one matrix, from groups of rows that end at ``ends``."""
    blocks = -(-k // BLOCK)
    across = -(-blocks // ACROSS)
    group, row = _group_of(ends, rows)
    tiles = (ends - _group_starts(ends) + ROWS - 1) // ROWS * across
    first = (tiles.cumsum(0) - tiles)[group].unsqueeze(1)
    block = torch.arange(blocks, dtype=ends.dtype, device=ends.device)
    return _in_tiles(_read_tiles(scales, first, across, row.unsqueeze(1), block))


def _tiles_of_inner(scales: Tensor, ends: Tensor, rows: int, k: int) -> list[Tensor]:
    """Returns for each group the scales of a matrix (rows, k) whose inner dimension is in groups of whole blocks; they
    are 1 outside of the group."""
    ends = ends // BLOCK
    group, block = _group_of(ends, -(-k // BLOCK))
    across = (ends - _group_starts(ends) + ACROSS - 1) // ACROSS
    tiles = across * -(-rows // ROWS)
    row = torch.arange(rows, dtype=ends.dtype, device=ends.device).unsqueeze(1)
    bits = _read_tiles(scales, (tiles.cumsum(0) - tiles)[group], across[group], row, block)
    within = torch.arange(bits.size(1), dtype=ends.dtype, device=ends.device) < ends[-1]
    return [_in_tiles(torch.where(group.eq(i) & within, bits, ONE)) for i in range(ends.size(0))]


@meta("_scaled_grouped_mm")
def scaled_grouped_mm_meta(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """Checks as PyTorch's Meta kernel does, but for results in bfloat16, as kernels return without ``out_dtype``."""
    checked: Tensor = meta_scaled_grouped_mm(
        mat_a, mat_b, scale_a, scale_b, offs, bias, scale_result, out_dtype or torch.bfloat16, use_fast_accum
    )
    return checked


@decomposition("_scaled_grouped_mm")
def scaled_grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """Computes a float8 product for each group, with scales of rows, or MX. The lengths of groups are data: each group
    is multiplied with all columns, and masked, as for ``_grouped_mm``."""
    of_blocks = scale_a.dtype is MX

    def product(a: Tensor, b: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        if not of_blocks:
            rows, columns = rows.view(-1, 1), columns.view(1, -1)
        return torch._scaled_mm(a, b, rows, columns, out_dtype=torch.bfloat16)

    if offs is None:
        return torch.stack([product(*each) for each in zip(mat_a, mat_b, scale_a, scale_b, strict=True)])
    if mat_a.dim() == mat_b.dim() == 2:  # groups of the inner dimension, each with its own scales
        chosen = _of_groups(offs, mat_a.size(1))
        rows: Sequence[Tensor] | Tensor = scale_a.view(len(chosen), -1) if not of_blocks else ()
        columns: Sequence[Tensor] | Tensor = scale_b.view(len(chosen), -1) if not of_blocks else ()
        if of_blocks:
            rows = _tiles_of_inner(scale_a, offs, *mat_a.shape)
            columns = _tiles_of_inner(scale_b, offs, *mat_b.t().shape)
        none = torch.zeros((), dtype=mat_a.dtype, device=mat_a.device)
        parts = [
            product(torch.where(here, mat_a, none), torch.where(here, mat_b.t(), none).t(), rows[i], columns[i])
            for i, here in enumerate(chosen)
        ]
        return torch.stack(parts)
    of_rows = mat_a.dim() == 2
    if of_blocks and of_rows:
        scale_a = _tiles_of_rows(scale_a, offs, *mat_a.shape)
    elif of_blocks:
        scale_b = _tiles_of_rows(scale_b, offs, *mat_b.t().shape)
    result: Tensor | None = None
    for i, here in enumerate(_of_groups(offs, mat_a.size(0) if of_rows else mat_b.size(1))):
        part = (
            product(mat_a, mat_b[i], scale_a, scale_b[i]) if of_rows else product(mat_a[i], mat_b, scale_a[i], scale_b)
        )
        where = here.unsqueeze(1 if of_rows else 0)
        result = torch.where(where, part, 0 if result is None else result)
    assert result is not None
    return result


@composition("_scaled_grouped_mm_v2")
@meta("_scaled_grouped_mm_v2")
def scaled_grouped_mm_v2(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: list[Tensor],
    recipe_a: list[int],
    swizzle_a: list[int],
    scale_b: list[Tensor],
    recipe_b: list[int],
    swizzle_b: list[int],
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    forms = [((1,), (0,)), ((3,), (1,))]  # ScalingType and SwizzleType: RowWise; BlockWise1x32 in SWIZZLE_32_4_4
    given = {(tuple(recipe_a), tuple(swizzle_a) or (0,)), (tuple(recipe_b), tuple(swizzle_b) or (0,))}
    if not any(given == {form} for form in forms) or list(contraction_dim) not in ([], [1, 0], [-1, -2]):
        raise ValueError(
            "pjrt: _scaled_grouped_mm_v2 takes scales of rows (ScalingType.RowWise) without swizzle, or MX scales "
            "(BlockWise1x32) in SWIZZLE_32_4_4; others are not lowered: multiply the operands out with their scales, "
            "and use _grouped_mm"
        )
    result: Tensor = torch._scaled_grouped_mm(
        mat_a, mat_b, scale_a[0], scale_b[0], offs, bias, None, out_dtype, use_fast_accum
    )
    return result
