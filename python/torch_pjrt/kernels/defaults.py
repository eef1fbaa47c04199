"""Kernels that are registered by default, by platform. ``TORCH_PJRT_LIBRARY_KERNELS=0`` disables them.

Their modules are imported when the first call is offered to them.
"""

from __future__ import annotations

import os
from typing import Any

from torch_pjrt import _C

# The op for devices of other backends, and the ops in graphs of CUDA tensors.
ATTENTION = ("fused_attention_overrideable", "flash_attention", "efficient_attention", "cudnn_attention")


def _attention(*offer: Any) -> Any:
    from torch_pjrt.kernels import attention

    return attention.claim(*offer)


def install() -> None:
    """Registers the kernels, once, for programs of their platforms."""
    if os.environ.get("TORCH_PJRT_LIBRARY_KERNELS") == "0":
        return
    for op in ATTENTION:
        for way in "", "_backward":
            _C.add_default_kernel(
                f"aten._scaled_dot_product_{op}{way}.default", "cuda", "cuDNN's fused attention", _attention
            )
