"""Kernels that are offered composites without anybody's asking, by platform. ``TORCH_PJRT_KERNELS=0``: none are.

What makes them is imported when the first is offered something.
"""

from __future__ import annotations

import os
from typing import Any

from torch_pjrt import _C

# The op for devices like ours, and those that graphs of CUDA's tensors have.
ATTENTION = ("fused_attention_overrideable", "flash_attention", "efficient_attention", "cudnn_attention")


def _attention(*offer: Any) -> Any:
    from torch_pjrt.kernels import attention

    return attention.claim(*offer)


def install() -> None:
    """Once, from then on for programs of such platforms."""
    if os.environ.get("TORCH_PJRT_KERNELS") == "0":
        return
    for op in ATTENTION:
        for way in "", "_backward":
            _C.add_default_kernel(
                f"aten._scaled_dot_product_{op}{way}.default", "cuda", "cuDNN's fused attention", _attention
            )
