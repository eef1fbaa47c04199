"""Products with weights of 8 bits, as torchao's weight-only quantization has them: which kernel runs, and values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from tests.kernels.library import HAS_AVX2, HAS_BF16
from tests.kernels.test_products import CALL, close, drawn

pytestmark = [pytest.mark.compiled, pytest.mark.host_memory]

with_library = pytest.mark.skipif(not HAS_BF16, reason="oneDNN multiplies no bfloat16 here: products are XLA's")
with_rows = pytest.mark.skipif(not HAS_AVX2, reason="the skinny GEMM's kernel is made of AVX2 and AVX-512")


@with_library
@pytest.mark.parametrize("narrow", [torch.int8, torch.float8_e4m3fn, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 16])
def test_a_weight_that_is_converted_is_read_in_its_layout(rows: int, narrow: torch.dtype, programs: list[str]) -> None:
    """torchao's 8-bit weights: a program that converts and then transposes them took ten times as long as the
    product."""
    x, w = drawn(rows, 1024), (torch.randn(768, 1024) * 20).to(narrow)
    w[3, 5] = -128
    torch._dynamo.reset()
    product = torch.compile(lambda x, w: x @ w.t().to(x.dtype), backend="pjrt", dynamic=False)
    close(product(x, w), x @ w.t().to(x.dtype))
    (call,) = [line for line in programs[-1].splitlines() if CALL in line]
    assert "b_transposed=True" in call


@with_rows
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 13])
def test_int8_weights_are_multiplied_as_they_are(rows: int, dtype: torch.dtype, programs: list[str]) -> None:
    """A conversion first would write the weight in the products' dtype, and read it again."""
    x, w, bias = drawn(rows, 1000, dtype=dtype), torch.randint(-128, 128, (513, 1000), dtype=torch.int8), drawn(513)
    x[0, 0], x[-1, 1], x[-1, 2] = torch.nan, torch.inf, -0.0
    torch._dynamo.reset()
    for multiply in (
        lambda x, w, _: x @ w.to(x.dtype).t(),
        lambda x, w, _: x @ w.t().contiguous().to(x.dtype),
        lambda x, w, bias: F.linear(x, w.to(x.dtype), bias),
        lambda x, w, _: x.view(1, rows, -1) @ w.t().to(x.dtype),
    ):
        product = torch.compile(multiply, backend="pjrt", dynamic=False)
        close(product(x, w, bias.to(dtype)), multiply(x, w, bias.to(dtype)))
        (call,) = [line for line in programs[-1].splitlines() if CALL in line]
        assert "by=skinny" in call
        assert "xi8>" in call


@with_rows
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("rows", [1, 13])
def test_float8_weights_are_multiplied_as_they_are(rows: int, dtype: torch.dtype, programs: list[str]) -> None:
    bits = torch.arange(513 * 1000).remainder(256).to(torch.uint8).view(513, 1000)
    bits[(bits & 0x7F) == 0x7F] = 0  # NaN
    bits[7, 3], bits[8, 999] = 0x7F, 0xFF
    x, w = drawn(rows, 1000, dtype=dtype), bits.view(torch.float8_e4m3fn)
    torch._dynamo.reset()
    product = torch.compile(lambda x, w: x @ w.to(x.dtype).t(), backend="pjrt", dynamic=False)
    mine, exact = product(x, w), (x.double() @ w.double().t()).to(dtype)
    assert mine[:, 7:9].isnan().all()
    close(mine, exact)
    (call,) = [line for line in programs[-1].splitlines() if CALL in line]
    assert "xf8E4M3FN>" in call


@with_rows
@pytest.mark.parametrize("narrow", [torch.int8, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.sampled(2)
def test_dequantized_weights_are_multiplied_as_they_are(
    dtype: torch.dtype, narrow: torch.dtype, programs: list[str]
) -> None:
    """Scales and zero points of columns apply to the product, and those of rows and groups to the weight."""
    x, w, bias = drawn(3, 512, dtype=dtype), (torch.randn(768, 512) * 30).to(narrow), drawn(768, dtype=dtype)
    scale, zero = torch.rand(768, 1).to(dtype), torch.randint(-3, 4, (768, 1)).to(dtype)
    wide = lambda w: w.to(dtype)  # noqa: E731
    cases: list[tuple[bool, Callable[..., torch.Tensor]]] = [
        (True, lambda x, w: x @ (wide(w) * scale).t()),
        (True, lambda x, w: F.linear(x, wide(w) * scale, bias)),
        (True, lambda x, w: F.linear(x, ((w.float() - zero.float()) * scale.float()).to(dtype), bias)),
        (True, lambda x, w: x @ (wide(w.t().contiguous()) * scale.t())),
        (True, lambda x, w: x.view(3, 1, 512) @ (wide(w) * scale[:1]).t()),
        (False, lambda x, w: F.linear(x, wide(w) * scale[:512].t(), bias)),
        (
            False,
            lambda x, w: F.linear(x, (wide(w).view(768, 16, 32) * scale.view(768, 1, 1)).view(768, 512) * bias[:1]),
        ),
        (False, lambda x, w: x @ (wide(w) * scale).to(torch.float8_e5m2).to(dtype).t()),
        (False, lambda x, w: x @ (wide(w) - zero + scale).t()),
    ]
    torch._dynamo.reset()
    for folds, multiply in cases:
        product = torch.compile(multiply, backend="pjrt", dynamic=False)
        close(product(x, w), multiply(x, w))
        calls = [line for line in programs[-1].splitlines() if CALL in line]
        assert any("xi8>" in call or "xf8E4M3FN>" in call for call in calls) == folds


@with_rows
def test_other_integers_are_converted_in_their_layout(programs: list[str]) -> None:
    x, w = drawn(1, 1024), torch.randint(0, 256, (768, 1024), dtype=torch.uint8)
    torch._dynamo.reset()
    product = torch.compile(lambda x, w: x @ w.t().to(x.dtype), backend="pjrt", dynamic=False)
    close(product(x, w), x @ w.t().to(x.dtype))
    (call,) = [line for line in programs[-1].splitlines() if CALL in line]
    assert "b_transposed=True" in call
