"""The ops of everyday programs in every dtype that the CPU has for them."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.opinfo.core import SampleInput

from tests.ops.opinfo import DEVICE, OPS, assert_same, compute, on_device, samples, tensors
from tests.ops.test_opinfo import run

pytestmark = pytest.mark.each_way

COUNT = 2

DTYPES = (
    torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool,
    torch.complex64, torch.complex128,
)  # fmt: skip

COMMON = (
    "abs", "add", "addcdiv", "addcmul", "addmm", "all", "amax", "amin", "any", "arange", "argmax", "argmin",
    "argsort", "atan2", "baddbmm", "bitwise_and", "bitwise_not", "bmm", "cat", "ceil", "clamp", "clone", "cumprod",
    "cumsum", "diagonal", "diff", "div.floor_rounding", "div.no_rounding_mode", "div.trunc_rounding", "dot", "eq",
    "exp", "expand", "eye", "fill", "flip", "floor", "floor_divide", "fmod", "full_like", "gather", "ge",
    "index_add", "index_put", "index_select", "isfinite", "isnan", "kron", "linspace", "log", "log_softmax",
    "logical_and", "logical_not", "logsumexp", "masked_fill", "matmul", "max.binary", "max.reduction_with_dim",
    "maximum", "mean", "min.binary", "minimum", "mm", "mul", "neg", "nn.functional.conv2d",
    "nn.functional.embedding", "nn.functional.gelu", "nn.functional.layer_norm", "nn.functional.linear",
    "nn.functional.max_pool2d", "nn.functional.one_hot", "nn.functional.pad.constant", "nn.functional.relu",
    "nn.functional.scaled_dot_product_attention", "nn.functional.silu", "nn.functional.softplus", "pow", "prod",
    "reciprocal", "remainder", "repeat", "roll", "round", "rsqrt", "scatter", "scatter_add", "sigmoid", "sign",
    "sin", "softmax", "sort", "sqrt", "square", "stack", "std", "sub", "sum", "tanh", "topk", "transpose", "tril",
    "triu", "true_divide", "unbind", "var", "where", "xlogy", "zeros_like",
)  # fmt: skip


# Any order of the indices of equal elements is right; the value is the position of the argument dim.
INDICES_OF_EQUALS = {"sort": 0, "argsort": 0, "topk": 1}


def elements_at(indices: torch.Tensor, sample: SampleInput, position: int) -> torch.Tensor:
    dim = sample.kwargs.get("dim", sample.args[position] if len(sample.args) > position else -1)
    return sample.input.gather(dim, indices.cpu())


def test_names_exist() -> None:
    assert [name for name in COMMON if name not in OPS] == []


@pytest.mark.parametrize("name", [name for name in COMMON if name in OPS])
@pytest.mark.sampled(4)
def test_dtypes(name: str) -> None:
    """Computes all dtypes as one graph: one program compiles in half the time of ten."""
    op = OPS[name]
    given = [sample for dtype in DTYPES if op.supports_dtype(dtype, "cpu") for sample in samples(op, dtype, COUNT)]
    results = [run(op, on_device(sample)) for sample in given]
    compute(results)
    for sample, actual in zip(given, results, strict=True):
        expected = run(op, sample)
        if name in INDICES_OF_EQUALS and not sample.kwargs.get("stable"):
            *actual_values, indices = tensors(actual)
            *expected_values, expected_indices = tensors(expected)
            at, expected_at = (elements_at(i, sample, INDICES_OF_EQUALS[name]) for i in (indices, expected_indices))
            actual, expected = [*actual_values, at], [*expected_values, expected_at]
        assert_same(actual, expected)


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_numbers_beyond_float8(source: torch.dtype) -> None:
    x = torch.tensor([0.3, 447, 449, 500, -1e4, float("inf"), float("-inf"), float("nan")], dtype=source)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
        result, expected = x.to(DEVICE).to(dtype).cpu().float(), x.to(dtype).float()
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "source", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool]
)
def test_exponents(source: torch.dtype) -> None:
    """float8_e8m0fnu has neither 0 nor signs; torch rounds to the number nearest to the magnitude."""
    exponent = torch.float8_e8m0fnu
    values = [0, 1, 1.4, 1.5, 3, -2, 6, 100, float("inf"), float("nan"), 1e-30, 0.1]
    x = torch.tensor([v for v in values if source.is_floating_point or abs(v) < 1e9], dtype=torch.float64).to(source)
    there = x.to(DEVICE).to(exponent)
    assert_same(there.view(torch.uint8), x.to(exponent).view(torch.uint8))
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        assert_same(there.to(dtype), x.to(exponent).to(dtype))
    values.remove(float("inf"))  # the CPU refuses it too
    filled = [torch.full((2,), v, dtype=exponent, device=DEVICE) for v in values]
    for each, value in zip(filled, values, strict=True):
        assert_same(each.view(torch.uint8), torch.full((2,), value, dtype=exponent).view(torch.uint8))
    assert_same(torch.zeros(2, dtype=exponent, device=DEVICE).view(torch.uint8), torch.zeros(2, dtype=torch.uint8))
    assert_same(torch.cat([filled[1], filled[4]]).view(torch.uint8), torch.tensor([127, 127, 129, 129]).byte())


@pytest.mark.parametrize("source", [torch.int64, torch.int32, torch.int16])
def test_integers_beyond_float8(source: torch.dtype) -> None:
    x = torch.tensor([0, 17, 448, 465, 500, -1000, torch.iinfo(source).max], dtype=source)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
        result, expected = x.to(DEVICE).to(dtype).cpu().float(), x.to(dtype).float()
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def test_a_complex_norm_in_another_dtype() -> None:
    """The elements are converted before their magnitudes are taken."""
    x = torch.randn(10, dtype=torch.complex64) * 30
    for order in (1, 2, 3):
        expected = torch.linalg.vector_norm(x, order, dtype=torch.complex128)
        actual = torch.linalg.vector_norm(x.to("pjrt"), order, dtype=torch.complex128)
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-13, atol=0)
