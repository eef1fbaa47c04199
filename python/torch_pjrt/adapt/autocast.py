"""What PyTorch and torchvision have for the autocast of CPU and CUDA alone, for ``torch.autocast("pjrt")``.

The dispatch of higher-order operators (``torch.cond``, ``scan``, ``flex_attention``, …) is Python's: one that is no
matter of dtypes falls through the autocast of the devices on a list, which ends with those that PyTorch knows, and one
that has kernels for autocast has them for CPU and CUDA. torchvision's operators run in float32 at least.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention
from torch.amp.autocast_mode import _cast

_KEY = torch._C.DispatchKey.AutocastPrivateUse1
_torchvision = torch.library.Library("torchvision", "IMPL")  # whether it is ever imported or not


def _flex_attention(*args: Any, **kwargs: Any) -> Any:
    """Query, key and value in autocast's dtype, as PyTorch's kernels for CPU and CUDA have them."""
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_KEY)):
        return flex_attention(*_cast(args[:3], "pjrt", torch.get_autocast_dtype("pjrt")), *args[3:], **kwargs)


def _in_float32(name: str) -> Callable[..., Any]:
    """An operator of torchvision. Its results have the dtype of its first argument; integers stay what they are."""

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
    torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(_KEY)  # of operators to come
    for op in torch._ops._higher_order_ops.values():
        if not op.non_fallthrough_keys.has(torch._C.DispatchKey.AutocastCUDA):
            op.fallthrough(_KEY)
    flex_attention.py_impl(_KEY)(_flex_attention)
