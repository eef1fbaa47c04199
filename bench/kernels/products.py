"""Matrix products compiled for the CPU, by shape and dtype, against eager: of few and of many rows, by matrices that
are transposed (linear) and not (mm), and attention. Times are the minimum over some rounds.

TORCH_PJRT_LIBRARY_KERNELS=0 times XLA alone.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from measure import Result, interleaved

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LAYERS = ((1, 1024, 2816), (16, 1024, 2816), (128, 768, 3072), (512, 1024, 2816), (128, 64, 128))
ROUNDS = 7


def compared(name: str, ours: object, reference: object) -> Result:
    times = interleaved({"ours": ours, "eager": reference}, rounds=ROUNDS)  # type: ignore[dict-item]
    best = {way: min(spent) for way, spent in times.items()}
    return Result(name, best["ours"], best["eager"], best["ours"] / best["eager"], None)


def of_dtype(dtype: torch.dtype) -> list[Result]:
    name = str(dtype).removeprefix("torch.")
    results: list[Result] = []

    def add(what: str, function: object, *operands: torch.Tensor) -> None:
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="pjrt", dynamic=False)  # type: ignore[call-overload]
        results.append(compared(f"{name}, {what}", lambda: compiled(*operands), lambda: function(*operands)))  # type: ignore[operator]

    for rows, depth, columns in LAYERS:
        x, w = torch.randn(rows, depth).to(dtype), torch.randn(columns, depth).to(dtype)
        shape = f"{rows} × {depth} × {columns}"
        add(f"linear, {shape}", F.linear, x, w)
        add(f"mm, {shape}", torch.mm, x, w.t().contiguous())
    q = torch.randn(1, 8, 512, 64).to(dtype)
    add("attention, 8 heads × 512 × 64", lambda x: F.scaled_dot_product_attention(x, x, x), q)
    return results


def measure() -> list[Result]:
    torch.manual_seed(0)
    with torch.no_grad():
        return [result for dtype in DTYPES for result in of_dtype(dtype)]
