"""The capabilities of PyTorch's library (oneDNN) on this machine, and the operands' layouts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

HAS_BF16: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
# Native instructions (AVX512-BF16, AMX) for bfloat16: the library then runs its convolutions.
HAS_BF16_DOTS: bool = HAS_BF16 and torch.cpu._is_avx512_bf16_supported()
# The library then runs convolutions of float32, and this project's kernel (src/kernels/cpu/products) skinny products:
# of one row if the library multiplies the dtype, otherwise of more.
HAS_AVX2: bool = torch.backends.cpu.get_cpu_capability().startswith("AVX")
of_float32_convolutions = pytest.mark.skipif(not HAS_AVX2, reason="oneDNN has no AVX2 here: convolutions are XLA's")
OF_MANY_ROWS = [
    dtype
    for dtype, uses_library in (
        (torch.bfloat16, HAS_BF16), (torch.float16, torch.ops.mkldnn._is_mkldnn_fp16_supported()),
    ) if not uses_library
]  # fmt: skip

# Layouts in four dimensions: equal values at other addresses.
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "at an odd offset": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
    "every second": lambda x: torch.stack([x, x], 1).flatten(0, 1)[::2],
    "turned": lambda x: x.mT.contiguous().mT,
    "repeated": lambda x: x[:1].expand_as(x),
}
