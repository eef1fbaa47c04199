"""Attention, and products in the formats that have kernels of their own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from beside_cpu import Ways, difference, gradients, program, tried, ways
from torch import Tensor
from torch.nn import functional as F
from worker import Setting, Values


def attention_of(
    setting: Setting, call: Callable[..., Tensor], dtype: torch.dtype, *more: Tensor, of: str = ""
) -> Ways:
    """Returns forward and backward, compared with the same in float32."""
    tensors = [torch.randn(2, heads, 70, 64).to(dtype) for heads in (8, 2, 2)]
    wanted = gradients(call)(*(t.float() for t in tensors), *more)
    tolerance = 1e-3 if dtype is torch.float32 else 4e-2
    return ways(setting, call, *tensors, *more, tolerance=tolerance, wanted=wanted, of=of, done=gradients)


@program
def attention(setting: Setting) -> Values:
    """Checks causal attention, with two heads of keys for eight, forward and backward."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    full = attention_of(setting, call, torch.float32, of="float32, ")
    return tried(setting, full | attention_of(setting, call, torch.bfloat16, of="bfloat16, "))


@program
def attention_with_a_mask(setting: Setting) -> Values:
    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    mask = torch.rand(70, 70) > 0.3
    mask[:, 0] = True
    return tried(setting, attention_of(setting, call, torch.bfloat16, mask))


@program
def precision_of_float32(setting: Setting) -> Values:
    """Checks the error of a product: exact by default, TF32 on request."""
    x, y = torch.randn(256, 512), torch.randn(512, 256)
    wanted, found = x.double() @ y.double(), {}
    for precision, most in (("highest", 5e-6), ("high", 3e-3)):
        torch.set_float32_matmul_precision(precision)
        lazily = x.to("pjrt") @ y.to("pjrt")
        compiled = torch.compile(lambda a, b: a @ b, backend="pjrt", dynamic=False)
        found[f"{precision}, lazily"] = difference(lazily, wanted, most)
        found[f"{precision}, compiled"] = difference(compiled(x.to(setting.device), y.to(setting.device)), wanted, most)
    return found


@program
def products_of_int8(setting: Setting) -> Values:
    all_sizes: Ways = {}
    for m, k, n in ((17, 64, 32), (32, 64, 32), (64, 256, 128)):
        a, b = (torch.randint(-128, 128, size, dtype=torch.int8) for size in ((m, k), (k, n)))
        wanted = a.int() @ b.int()
        all_sizes |= ways(setting, torch._int_mm, a, b, tolerance=0.0, wanted=wanted, of=f"{m} × {k} × {n}, ")
    return tried(setting, all_sizes)


@program
def products_of_float8(setting: Setting) -> Values:
    """Checks products with one scale for each operand, and with MX scales, of two sizes."""
    from tests.decompositions.mx import with_mx

    def call(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
        return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.bfloat16)

    all_sizes: Ways = {}
    for k in (64, 208):
        a, b = torch.randn(48, k).to(torch.float8_e4m3fn), torch.randn(144, k).to(torch.float8_e4m3fn)
        scales = torch.rand(1), torch.rand(1)
        wanted = a.float() @ b.float().t() * scales[0] * scales[1]
        all_sizes |= ways(setting, call, a, b, *scales, tolerance=1e-2, wanted=wanted, of=f"plain, k = {k}, ")
        (a, scale_a, wide_a), (b, scale_b, wide_b) = with_mx(48, k), with_mx(144, k)
        wanted = wide_a @ wide_b.t()
        all_sizes |= ways(setting, call, a, b, scale_a, scale_b, tolerance=1e-2, wanted=wanted, of=f"MX, k = {k}, ")
    return tried(setting, all_sizes)
