"""Higher-order operators (``torch.cond``, ``scan``, ``flex_attention``, …) under ``torch.autocast("pjrt")``.

Their dispatch is Python's: one that is no matter of dtypes falls through the autocast of the devices on a list, which
ends with those that PyTorch knows, and one that has kernels for autocast has them for CPU and CUDA.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.flex_attention import flex_attention
from torch.amp.autocast_mode import _cast

_KEY = torch._C.DispatchKey.AutocastPrivateUse1


def _flex_attention(*args: Any, **kwargs: Any) -> Any:
    """Query, key and value in autocast's dtype, as PyTorch's kernels for CPU and CUDA have them."""
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_KEY)):
        return flex_attention(*_cast(args[:3], "pjrt", torch.get_autocast_dtype("pjrt")), *args[3:], **kwargs)


def install() -> None:
    torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(_KEY)  # of operators to come
    for op in torch._ops._higher_order_ops.values():
        if not op.non_fallthrough_keys.has(torch._C.DispatchKey.AutocastCUDA):
            op.fallthrough(_KEY)
    flex_attention.py_impl(_KEY)(_flex_attention)
