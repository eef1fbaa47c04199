"""Attention, and products in the formats that have kernels of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from beside_cpu import both, difference, gradients, program
from torch import Tensor
from torch.nn import functional as F
from worker import Setting, Values


def attention_of(setting: Setting, call: Callable[..., Tensor], dtype: torch.dtype, *more: Tensor) -> Values:
    tolerance = 1e-3 if dtype is torch.float32 else 4e-2
    tensors = [torch.randn(2, heads, 70, 64).to(dtype) for heads in (8, 2, 2)]
    wide = gradients(call)(*(t.float() for t in tensors), *more)
    compiled = gradients(torch.compile(call, backend="pjrt", dynamic=False))
    results = {
        "lazily": gradients(call)(*(t.to("pjrt") for t in (*tensors, *more))),
        "compiled": compiled(*(t.to(setting.device) for t in (*tensors, *more))),
    }
    return {name: difference([t.float() for t in got], wide, tolerance) for name, got in results.items()}


@program
def attention(setting: Setting) -> Values:
    """Causal, two heads of keys for eight, forward and backward, in float32 and bfloat16."""
    call = partial(F.scaled_dot_product_attention, is_causal=True, enable_gqa=True)
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        for name, worst in attention_of(setting, lambda q, k, v: call(q, k, v), dtype).items():
            found[f"{name}, {str(dtype).removeprefix('torch.')}"] = worst
    return found


@program
def attention_with_a_mask(setting: Setting) -> Values:
    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    mask = torch.rand(70, 70) > 0.3
    mask[:, 0] = True
    return attention_of(setting, call, torch.bfloat16, mask)


@program
def precision_of_float32(setting: Setting) -> Values:
    """The error of a product: exact by default, TF32 where that is asked for."""
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
    found = {}
    for m, k, n in ((17, 64, 32), (32, 64, 32), (64, 256, 128)):
        a, b = (torch.randint(-128, 128, size, dtype=torch.int8) for size in ((m, k), (k, n)))
        one = both(setting, torch._int_mm, a, b, tolerance=0.0, wanted=a.int() @ b.int())
        found.update({f"{m} × {k} × {n}, {name}": worst for name, worst in one.items()})
        setting.report(found)
    return found


@program
def products_of_float8(setting: Setting) -> Values:
    """With one scale for each, and with MX scales, of two sizes."""
    from tests.decompositions.test_quantization import with_mx

    found = {}
    for k in (64, 208):
        a, b = torch.randn(48, k).to(torch.float8_e4m3fn), torch.randn(144, k).to(torch.float8_e4m3fn)
        scales = torch.rand(1), torch.rand(1)
        (ma, scale_a, wide_a), (mb, scale_b, wide_b) = with_mx(48, k), with_mx(144, k)
        wanted = {
            "plain": ((a, b, *scales), a.float() @ b.float().t() * scales[0] * scales[1]),
            "MX": ((ma, mb, scale_a, scale_b), wide_a @ wide_b.t()),
        }
        for kind, (tensors, values) in wanted.items():

            def call(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
                return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.bfloat16)

            one = both(setting, call, *tensors, tolerance=1e-2, wanted=values)
            found.update({f"{kind}, k = {k}, {name}": worst for name, worst in one.items()})
            setting.report(found)
    return found
