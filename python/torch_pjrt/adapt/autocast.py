"""Autocast on ``"pjrt"`` for operators whose autocast PyTorch and torchvision define for CPU and CUDA only.

Higher-order operators (``torch.cond``, ``scan``, ``flex_attention``, …) are dispatched in Python. An operator that
doesn't depend on dtypes falls through the autocast keys of a list of devices, which lacks this one; an operator with
kernels for autocast has them for CPU and CUDA. torchvision's operators compute at least in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention
from torch.amp.autocast_mode import _cast

_KEY = torch._C.DispatchKey.AutocastPrivateUse1
_torchvision = torch.library.Library("torchvision", "IMPL")  # torchvision need not be imported


def _flex_attention(*args: Any, **kwargs: Any) -> Any:
    """Casts query, key and value to autocast's dtype, as PyTorch's kernels for CPU and CUDA do."""
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_KEY)):
        return flex_attention(*_cast(args[:3], "pjrt", torch.get_autocast_dtype("pjrt")), *args[3:], **kwargs)


def _in_float32(name: str) -> Callable[..., Any]:
    """Returns a kernel that runs an operator of torchvision in float32; results have the dtype of its first argument,
    integers stay integers."""

    def wide(x: Any) -> Any:
        return x.float() if isinstance(x, torch.Tensor) and x.dtype in (torch.float16, torch.bfloat16) else x

    def kernel(first: torch.Tensor, *rest: Any) -> Any:
        def given(x: torch.Tensor) -> torch.Tensor:
            return x.to(first.dtype) if x.is_floating_point() else x

        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_KEY)):
            result = getattr(torch.ops.torchvision, name)(wide(first), *(wide(x) for x in rest))
        return given(result) if isinstance(result, torch.Tensor) else tuple(given(x) for x in result)

    return kernel


def install() -> None:
    for name in ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"):
        _torchvision.impl(name, _in_float32(name), "AutocastPrivateUse1")
    torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(_KEY)  # for operators defined later
    for op in torch._ops._higher_order_ops.values():
        if not op.non_fallthrough_keys.has(torch._C.DispatchKey.AutocastCUDA):
            op.fallthrough(_KEY)
    flex_attention.py_impl(_KEY)(_flex_attention)
