"""What the library that PyTorch has (oneDNN) can do on this machine, and how its operands may lie."""

from __future__ import annotations

from collections.abc import Callable

import torch

HAS_BF16: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
# By instructions of its own (AVX512-BF16, AMX): then convolutions of bfloat16 are the library's.
HAS_BF16_DOTS: bool = HAS_BF16 and torch.cpu._is_avx512_bf16_supported()
# This project's kernel (src/kernels/cpu/products): of one row where the library multiplies the dtype, else of more.
HAS_ROWS: bool = torch.backends.cpu.get_cpu_capability().startswith("AVX")
OF_MANY_ROWS = [
    dtype
    for dtype, is_the_librarys in (
        (torch.bfloat16, HAS_BF16), (torch.float16, torch.ops.mkldnn._is_mkldnn_fp16_supported()),
    ) if not is_the_librarys
]  # fmt: skip

# Of four dimensions: the same values in other places.
LIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "at an odd offset": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
    "every second": lambda x: torch.stack([x, x], 1).flatten(0, 1)[::2],
    "turned": lambda x: x.mT.contiguous().mT,
    "repeated": lambda x: x[:1].expand_as(x),
}
