"""Fake quantization on the device: values, masks and gradients are the CPU's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torch_pjrt
from tests.decompositions.mx import with_mx
from tests.ops.opinfo import float8_product

pytestmark = pytest.mark.each_way

needs_cpu_of_2_12 = pytest.mark.skipif(torch.__version__ < "2.12", reason="the CPU has no such product to compare with")

X = torch.tensor([[0.25, 0.35, -0.15, 0.5, -9.0], [9.0, 0.0, float("nan"), -0.45, 0.05]])


def results(device: str, quantize: str, dtype: torch.dtype, zero: int) -> list[torch.Tensor]:
    x = X.to(device, dtype, copy=True).requires_grad_()
    if quantize == "per_channel":
        scale, points = torch.tensor([0.1, 0.3], device=device), torch.tensor([zero, -zero], device=device)
        y = torch.fake_quantize_per_channel_affine(x, scale, points.int(), 0, -8, 7)
    elif quantize == "per_channel, floats":
        scale, points = torch.ones(5, device=device), torch.full((5,), zero + 0.5, device=device)
        y = torch.fake_quantize_per_channel_affine(x, scale, points, 1, -8, 7)
    elif quantize == "tensors":
        scale, points = torch.tensor([0.1], device=device), torch.tensor([zero], device=device, dtype=torch.int32)
        y = torch.fake_quantize_per_tensor_affine(x, scale, points, -8, 7)
    else:
        y = torch.fake_quantize_per_tensor_affine(x, 0.1, zero, -8, 7)
    y.sum().backward()
    assert x.grad is not None
    return [y.detach().cpu(), x.grad.cpu()]


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("quantize", ["number", "tensors", "per_channel", "per_channel, floats"])
def test_fake_quantize(quantize: str, dtype: torch.dtype, zero: int) -> None:
    for got, expected in zip(
        results("pjrt", quantize, dtype, zero), results("cpu", quantize, dtype, zero), strict=True
    ):
        torch.testing.assert_close(got, expected, equal_nan=True)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("enabled", [0, 1])
def test_switched_off(enabled: int) -> None:
    answers = []
    for device in ("cpu", "pjrt"):
        scale, zero, on = (torch.tensor([v], device=device) for v in (0.1, 0, enabled))
        op = torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
        answers.append([y.cpu() for y in op(X[0].to(device), scale, zero.int(), on, -8, 7)])
    torch.testing.assert_close(answers[1], answers[0])


def agree(op: Callable[..., torch.Tensor], *arguments: torch.Tensor, expected: torch.Tensor | None = None) -> None:
    torch_pjrt.reset_metrics()
    torch._dynamo.reset()  # after too many recompiles the CPU would run the op by a kernel for the processor
    expected = op(*arguments) if expected is None else expected
    on_device, compiled = op(*(a.to("pjrt") for a in arguments)), torch.compile(op, backend="pjrt")(*arguments)
    for got in (on_device.cpu(), compiled):
        torch.testing.assert_close(got.float(), expected.float(), rtol=1e-2, atol=1e-5)
        assert got.dtype == expected.dtype
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("dtype", [torch.int8, pytest.param(torch.uint8, marks=needs_cpu_of_2_12)])
def test_products_of_8_bit_integers(dtype: torch.dtype) -> None:
    a = torch.randint(0 if dtype == torch.uint8 else -128, 128, (17, 64)).to(dtype)
    b = torch.randint(-128, 128, (64, 32), dtype=torch.int8)
    # The expected value is computed: on the CPU, oneDNN saturates sums of two products on old processors.
    agree(torch._int_mm, a, b, expected=a.int() @ b.int())


def test_int8_weights() -> None:
    weight = torch.randint(-128, 128, (32, 64), dtype=torch.int8)
    agree(torch._weight_int8pack_mm, torch.randn(4, 64).bfloat16(), weight, torch.rand(32).bfloat16())


@pytest.mark.parametrize(
    ("out", "scales"),
    [(dtype, "matrices") for dtype in (None, torch.float32, torch.bfloat16, torch.float8_e4m3fn)]
    + [pytest.param(torch.bfloat16, "rows", marks=needs_cpu_of_2_12)],
)
@pytest.mark.parametrize("biased", [False, True])
def test_float8_products(out: torch.dtype | None, scales: str, biased: bool) -> None:
    a, b = (torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
    scale_a, scale_b = (torch.rand(16, 1), torch.rand(1, 16)) if scales == "rows" else (torch.rand(1), torch.rand(1))
    plain = out is None or out.itemsize == 1
    bias = torch.randn(16, dtype=torch.float32 if plain else out)

    def product(*given: torch.Tensor) -> torch.Tensor:
        a, b, scale_a, scale_b, bias = given
        factor = None if out is None else scale_a.mean() + 1
        multiply = float8_product if calculated else torch._scaled_mm
        return multiply(a, b.t(), scale_a, scale_b, bias=bias if biased else None, scale_result=factor, out_dtype=out)

    calculated = True  # the CPU's kernel depends on the processor
    expected = product(a, b, scale_a, scale_b, bias)
    calculated = False
    agree(product, a, b, scale_a, scale_b, bias, expected=expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_float8_products_into_a_tensor(dtype: torch.dtype) -> None:
    a, b = (torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
    scale, out = torch.rand(1), torch.zeros(16, 16, dtype=dtype, device="pjrt")
    on_device = [x.to("pjrt") for x in (a, b.t(), scale, scale)]
    torch_pjrt.reset_metrics()
    result = torch._scaled_mm(*on_device, out_dtype=dtype, out=out)
    assert result is out
    expected = float8_product(a, b.t(), scale, scale, bias=None, scale_result=None, out_dtype=dtype)
    torch.testing.assert_close(out.cpu().float(), expected.float(), rtol=1e-2, atol=1e-5)
    assert expected.float().abs().max() > 0.1
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@needs_cpu_of_2_12
def test_scales_of_the_wrong_shape() -> None:
    a, b = (torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
    with pytest.raises(ValueError, match="Invalid scaling configuration"):
        torch._scaled_mm(a.to("pjrt"), b.to("pjrt").t(), torch.ones(3, device="pjrt"), torch.ones(3, device="pjrt"))


@needs_cpu_of_2_12
@pytest.mark.parametrize("recipe", [F.ScalingType.TensorWise, F.ScalingType.RowWise])
def test_products_of_scaled_float8(recipe: F.ScalingType) -> None:
    def product(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
        return F.scaled_mm(a, b, scale_a, recipe, scale_b, recipe, output_dtype=torch.bfloat16)

    scales = (
        (torch.rand(17, 1), torch.rand(1, 32)) if recipe == F.ScalingType.RowWise else (torch.rand(1), torch.rand(1))
    )
    a, b = (torch.randn(n, 64).to(torch.float8_e4m3fn) for n in (17, 32))
    agree(product, a, b.t(), *scales)


GROUPED = {"rows": (2, 3), "columns": (3, 2), "inner": (2, 2), "each": (3, 3)}


@pytest.mark.parametrize("form", GROUPED)
def test_float8_products_of_groups(form: str) -> None:
    """Compared with float32, because the CPU has no kernel."""
    a_dims, b_dims = GROUPED[form]
    ends = torch.tensor([16, 48], dtype=torch.int32)
    k = 64
    a = torch.randn(*((2, 32) if a_dims == 3 else (64,) if form == "rows" else (32,)), k).to(torch.float8_e4m3fn)
    b = torch.randn(*((2, 16) if b_dims == 3 else (64,) if form == "columns" else (16,)), k).to(torch.float8_e4m3fn)
    scale_a, scale_b = torch.rand(a.shape[:-1]), torch.rand(b.shape[:-1])
    if form == "inner":
        scale_a, scale_b = torch.rand(64), torch.rand(32)
    given = [each.to("pjrt") for each in (a, b, scale_a, scale_b, ends)]

    def product(a: Any, b: Any, scale_a: Any, scale_b: Any, ends: Any) -> Any:
        offs = None if form == "each" else ends
        row = F.ScalingType.RowWise
        return F.scaled_grouped_mm(a, b.transpose(-2, -1), scale_a, row, scale_b, row, offs=offs)

    result = product(*given)
    assert result.dtype is torch.bfloat16
    wide_a, wide_b = a.float(), b.float()
    if form == "inner":
        parts = [slice(0, 16), slice(16, 48)]
        scales = zip(scale_a.view(2, 32, 1), scale_b.view(2, 1, 16), strict=True)
        wanted = torch.stack([wide_a[:, p] @ wide_b[:, p].t() * x * y for p, (x, y) in zip(parts, scales, strict=True)])
    else:
        wide_a, wide_b = wide_a * scale_a.unsqueeze(-1), (wide_b * scale_b.unsqueeze(-1)).transpose(-2, -1)
        wanted = wide_a @ wide_b
        if form == "rows":
            wanted = torch.cat([wanted[0, :16], wanted[1, 16:48], torch.zeros(16, 16)])
        if form == "columns":
            wanted = torch.cat([wanted[0, :, :16], wanted[1, :, 16:48], torch.zeros(32, 16)], 1)
    torch.testing.assert_close(result.cpu().float(), wanted, rtol=2e-2, atol=2e-2)
    if form == "rows":
        text = torch_pjrt.to_stablehlo(product, *given)
        assert re.search(r"dot_general .*tensor<64x64xf8E4M3FN>, tensor<64x16xf8E4M3FN>\) -> tensor<64x16xf32>", text)


@pytest.mark.parametrize("k", [64, 208])
def test_mx_scales(k: int) -> None:
    (a, scale_a, wide_a), (b, scale_b, wide_b) = with_mx(48, k), with_mx(144, k)
    bias = torch.randn(144).bfloat16()
    wanted = wide_a @ wide_b.t() + bias.float()
    mx, tiles = F.ScalingType.BlockWise1x32, F.SwizzleType.SWIZZLE_32_4_4

    def first(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any) -> Any:
        return torch._scaled_mm(a, b.t(), scale_a, scale_b, bias=bias, out_dtype=torch.bfloat16)

    def second(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any) -> Any:
        return F.scaled_mm(a, b.t(), scale_a, mx, scale_b, mx, tiles, tiles, bias=bias, output_dtype=torch.bfloat16)

    given = [each.to("pjrt") for each in (a, b, scale_a, scale_b, bias)]
    torch_pjrt.reset_metrics()
    for product in (first, second):
        for got in (product(*given), torch.compile(product, backend="pjrt")(*given)):
            torch.testing.assert_close(got.cpu().float(), wanted, rtol=1e-2, atol=1e-2)
        text = torch_pjrt.to_stablehlo(product, *given)
        types = f"(tensor<48x{k}xf8E4M3FN>, tensor<144x{k}xf8E4M3FN>, tensor<48x2xf8E8M0FNU>, tensor<144x2xf8E8M0FNU>)"
        assert (f": {types} -> tensor<48x144xf32>" in text) == (k == 64)  # whole blocks
        assert ('stablehlo.composite "xla.scaled_dot"' in text) == (k == 64)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("form", ["rows", "columns", "inner"])
def test_mx_scales_of_groups(form: str) -> None:
    """The tiles of each group follow those of the group before it; the last group is empty."""
    k, ends = (128, [32, 192, 192]) if form != "inner" else (256, [64, 224, 224])
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    one, other = [], []  # the operands of each group
    for size in sizes:
        of_group = size if form == "inner" else k
        one.append(with_mx(64 if form == "inner" else size, of_group))
        other.append(with_mx(48, of_group))

    def joined(parts: list[Any], dim: int, which: int) -> torch.Tensor:
        return torch.cat([p[which].view(torch.uint8) for p in parts], dim).view(parts[0][which].dtype)

    if form == "inner":
        a, b = joined(one, 1, 0), joined(other, 1, 0)
        a, b = (F.pad(x.view(torch.uint8), (0, k - ends[-1]), value=56).view(x.dtype) for x in (a, b))
        scale_a, scale_b = joined(one, 0, 1).view(128, -1), joined(other, 0, 1).view(128, -1)
        wanted = torch.stack([x[2] @ y[2].t() for x, y in zip(one, other, strict=True)])
    else:
        a = F.pad(joined(one, 0, 0).view(torch.uint8), (0, 0, 0, 16), value=56).view(torch.float8_e4m3fn)
        scale_a = joined(one, 0, 1).view(-1, k // 32)
        b = torch.stack([x[0] for x in other])
        scale_b = torch.stack([x[1].view(torch.uint8) for x in other]).view(torch.float8_e8m0fnu)
        wanted = torch.cat([*(x[2] @ y[2].t() for x, y in zip(one, other, strict=True)), torch.zeros(16, 48)])
    if form == "columns":
        a, b, scale_a, scale_b, wanted = b, a, scale_b, scale_a, wanted.t()
    mx, tiles = F.ScalingType.BlockWise1x32, F.SwizzleType.SWIZZLE_32_4_4
    a, b, scale_a, scale_b, offs = (t.to("pjrt") for t in (a, b, scale_a, scale_b, torch.tensor(ends).int()))
    torch_pjrt.reset_metrics()
    got = F.scaled_grouped_mm(a, b.transpose(-2, -1), scale_a, mx, scale_b, mx, tiles, tiles, offs=offs)
    torch.testing.assert_close(got.cpu().float(), wanted, rtol=2e-2, atol=1e-1)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("forms", [(4, 4), (4, 5), (5, 4)])
def test_float_scales_of_blocks(forms: tuple[int, int]) -> None:
    """Scales are for 128 elements of a row (4), or for 128 by 128 (5)."""
    k = 256
    a, b = (torch.randn(256, k).to(torch.float8_e4m3fn) for _ in range(2))
    second, first, wide = [], [], []
    for x, form in zip((a, b), forms, strict=True):
        scale = torch.rand(256 if form == 4 else 2, 2)
        each = scale.repeat_interleave(1 if form == 4 else 128, 0).repeat_interleave(128, 1)
        wide.append(x.float() * each)
        first.append(scale)
        padded = F.pad(scale.t(), (0, 0, 0, 2)).t().contiguous().t() if form == 5 else scale.t().contiguous().t()
        second.append(padded)
    wanted = wide[0] @ wide[1].t()
    x, y = a.to("pjrt"), b.to("pjrt")
    one, other = (scale.to("pjrt") for scale in second)
    kinds = [F.ScalingType(form) for form in forms]
    torch_pjrt.reset_metrics()
    got = F.scaled_mm(x, y.t(), one, kinds[0], other, kinds[1], output_dtype=torch.bfloat16)
    torch.testing.assert_close(got.cpu().float(), wanted, rtol=1e-2, atol=2e-2)
    one, other = (scale.to("pjrt") for scale in first)
    got = torch._scaled_mm(x, y.t(), one, other.t(), out_dtype=torch.bfloat16)
    torch.testing.assert_close(got.cpu().float(), wanted, rtol=1e-2, atol=2e-2)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_other_scales_of_blocks_are_refused() -> None:
    a, b = (torch.randn(32, 64).to(torch.float8_e4m3fn).to("pjrt") for _ in range(2))
    block = F.ScalingType.BlockWise1x128
    with pytest.raises(ValueError, match=r"scales of rows .*, or MX scales .*; others are not lowered"):
        torch.ops.aten._scaled_grouped_mm_v2(a, b.t(), [a], [int(block)], [0], [b], [int(block)], [0])


def test_an_observer_of_rows_takes_its_sizes_from_the_first_weight() -> None:
    def trained(device: str) -> list[torch.Tensor]:
        weight = torch.linspace(-1, 2, 24).view(4, 3, 2).to(device).requires_grad_()
        on = torch.ones(1, dtype=torch.int64, device=device)
        ranges = [torch.tensor([], device=device) for _ in range(2)]
        scale, zero = torch.ones(1, device=device), torch.zeros(1, dtype=torch.int32, device=device)
        for _ in range(2):
            y = torch.fused_moving_avg_obs_fake_quant(
                weight, on, on, *ranges, scale, zero, 0.1, 0, 255, 0, per_row_fake_quant=True
            )  # fmt: skip
            y.square().sum().backward()
            with torch.no_grad():
                weight.mul_(0.75)
        assert weight.grad is not None
        return [t.detach().cpu() for t in (y, *ranges, scale, zero, weight.grad)]

    for got, expected in zip(trained("pjrt"), trained("cpu"), strict=True):
        torch.testing.assert_close(got, expected)
