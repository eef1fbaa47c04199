"""``torch.nn.attention.flex_attention``, outside of compiled code: on the device, and differentiated to any order."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from torch._C import DispatchKey

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import


def _accept_the_device(flex_attention: Any) -> None:
    """Passes the device by PyTorch's list of devices. Dynamo traces the wrapper, as it does the function."""
    inner = getattr(flex_attention, "_validate_device", None)
    if inner is None:
        return

    @functools.wraps(inner)
    def validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != "pjrt":
            inner(query, key, value)

    flex_attention._validate_device = validate_device


def _differentiate_the_formula(flex_attention: ModuleType) -> None:
    """Differentiates the dense formula, because PyTorch's own backward has a wrong second derivative."""
    operator, dense = flex_attention.flex_attention, flex_attention.sdpa_dense
    traced = operator.py_kernels[DispatchKey.Autograd]

    def of_device(query: Any, *rest: Any) -> Any:
        return (traced if _C.has_no_values((query,)) else dense)(query, *rest)

    operator.py_impl(DispatchKey.AutogradPrivateUse1)(of_device)


def install() -> None:
    after_import("torch._higher_order_ops.flex_attention", _differentiate_the_formula)
    after_import("torch.nn.attention.flex_attention", _accept_the_device)
