"""Placeholders for tensors while a function is captured, and the values of traced tensors that are constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.capture.kept import Kept
from torch_pjrt.capture.wrapped import is_wrapped
from torch_pjrt.errors import CaptureError
from torch_pjrt.program.placeholders import DEVICE, make_placeholder
from torch_pjrt.program.subclasses import is_closed, is_compound, is_sparse

CPU = torch.device("cpu")
SINGLE, TUPLE, LIST = range(3)  # forms of a program's results


def like(trace: _C.Trace, real: torch.Tensor, name: str) -> torch.Tensor:
    """Returns a placeholder for ``real``."""
    if isinstance(real, Kept):
        raise CaptureError(
            f"{name} was made while a function was captured, and has no value: it was kept somewhere (a list, an "
            "attribute, a cache). Make it before the captured function is called, or anew in each call"
        )
    if real.device.type not in ("cpu", "pjrt") and not _C.is_shared(real.device):
        raise CaptureError(
            f"{name} is on '{real.device}'; a captured function's tensors are on 'cpu' or 'pjrt', or on 'cuda' with a "
            "plugin for CUDA"
        )
    if is_closed(real):
        raise CaptureError(
            f"{name} is a {type(real).__name__}, which doesn't say what it is made of (it has no __tensor_flatten__): "
            "give the function what it is made of, and make it there"
        )
    if torch.nn.parameter.is_lazy(real):
        raise CaptureError(f"{name} has no shape yet: run the lazy module once before")
    if real.layout == torch.strided and (real.is_conj() or real.is_neg()):
        raise CaptureError(f"{name} is a conjugate or negative that isn't computed: give .resolve_conj().resolve_neg()")
    plain = type(real) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or isinstance(real, torch.nn.Parameter)
    if not plain or real.layout != torch.strided:
        raise CaptureError(f"{name} is no plain dense tensor ({type(real).__name__}, {real.layout})")
    check_leaf(real, name)
    with (
        torch.no_grad(),
        torch.utils._python_dispatch._disable_current_modes(),
    ):  # modes see only the function's own calls
        result = make_placeholder(trace, real)
        if isinstance(real, torch.nn.Parameter):
            return torch.Tensor._make_subclass(type(real), result, real.requires_grad)
    return result.requires_grad_() if real.requires_grad else result


def check_leaf(real: torch.Tensor, name: str) -> None:
    if real.requires_grad and not real.is_leaf:
        raise CaptureError(
            f"{name} was computed by differentiable operations outside of the captured function; detach it, or compute "
            "it inside"
        )


def known_value(tensor: torch.Tensor) -> torch.Tensor | None:
    """Returns the value of a traced tensor on the CPU if it is the same in every call, else None.

    It is if the tensor depends on no argument, no state and no random draw."""
    if (
        not isinstance(tensor, torch.Tensor)
        or is_compound(tensor)
        or is_wrapped(tensor)
        or tensor.device.type != "pjrt"
    ):
        return None
    if not _C.Trace.is_known(tensor):
        return None
    program = _C.Trace().compile([tensor.detach()], [CPU], DEVICE)
    value: torch.Tensor = _C.Captured(program, [], [], [], [], SINGLE, []).call((None,))
    return value


def form_of_results(spec: pytree.TreeSpec, results: Sequence[Any]) -> int:
    if not all(isinstance(leaf, torch.Tensor) for leaf in results):
        return LIST
    if spec.is_leaf():
        return SINGLE
    return TUPLE if spec.type is tuple and all(child.is_leaf() for child in spec.children()) else LIST


def home_of(tensors: Sequence[tuple[str, torch.Tensor]]) -> torch.device:
    """Returns the one device of all tensors. Tensors without dimensions may be on any device."""
    places: dict[torch.device, str] = {}
    for name, tensor in tensors:
        if tensor.dim() > 0:
            places.setdefault(tensor.device, name)
    if len(places) > 1:
        where = " and ".join(f"{name} on '{device}'" for device, name in places.items())
        raise CaptureError(f"a captured function's tensors are on one device, but {where}")
    numbers = (tensor.device for _, tensor in tensors if tensor.device.type != "cpu")
    return next(iter(places), None) or next(numbers, CPU)


def check_sparse(real: torch.Tensor, name: str) -> None:
    if is_sparse(real) and real.requires_grad:
        raise CaptureError(
            f"{name} is a sparse tensor ({real.layout}) that requires grad, which a captured program can't hold: let "
            "its values require grad, and make it of them in the function (torch.sparse_coo_tensor, "
            "torch.sparse_csr_tensor, …), or leave the function to lazy execution, where a step is one program, too"
        )
