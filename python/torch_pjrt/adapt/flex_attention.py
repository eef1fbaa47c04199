"""``torch.nn.attention.flex_attention``, outside of compiled code: on the device, and differentiated to any order."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from torch._C import DispatchKey

from torch_pjrt import _C
from torch_pjrt.adapt.after_import import after_import


def _accept_the_device(flex_attention: ModuleType) -> None:
    """Adds the device to the list of supported ones, a constant in a function's code.

    The constant is replaced, not the function: another function would break Dynamo's graphs, because Dynamo traces
    PyTorch's code and skips this package's."""
    code = flex_attention._validate_device.__code__
    constants = (c | {"pjrt"} if isinstance(c, frozenset) and "cuda" in c else c for c in code.co_consts)
    flex_attention._validate_device.__code__ = code.replace(co_consts=tuple(constants))


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
