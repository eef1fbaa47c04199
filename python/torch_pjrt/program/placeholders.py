"""What a traced call is given: placeholders for tensors, the program's device, and how much memory a view may reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

DEVICE = torch.device("privateuseone")  # "pjrt": this is imported before the name is given

Layout = tuple[Sequence[int], Sequence[int]]  # sizes, strides


def make_placeholder(
    trace: Any, tensor: torch.Tensor, layout: Layout | None = None, device: torch.device | None = None
) -> torch.Tensor:
    """A tensor on the device without a value, the next argument of what ``trace`` compiles.

    Args:
        trace: a ``_C.Trace``.
        tensor: what it stands for, of any shape and dtype; a fake one too.
        layout: the tensor's, where sizes are symbols.
        device: where arguments lie; the tensor's by default.
    """
    sizes, strides = layout or (tensor.shape, tensor.stride())
    where = device or tensor.device
    result: torch.Tensor = trace.tensor(
        where, tensor.dtype, list(sizes), list(strides), tensor.is_conj(), tensor.is_neg()
    )
    return result


def naming_device(arguments: Any, means: Callable[[torch.device], torch.device] = lambda _: DEVICE) -> Any:
    """Arguments of a call in any structure, with what each device in it means: by default the program's."""
    return pytree.tree_map_only(torch.device, means, arguments)


def on_device(values: Any) -> Any:
    """Tensors in any structure, moved to the program's device: constants, and what was computed of numbers alone."""
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(DEVICE), values)


def same_strides(sizes: Sequence[int], some: Sequence[int], others: Sequence[int]) -> bool:
    """Is every element in the same place? A dimension of one element may have any stride."""
    return all(a == b for size, a, b in zip(sizes, some, others, strict=True) if size != 1)


def reaches(function: Any) -> bool:
    """Does it place a view of its own on a tensor's memory, which may be wider than the tensor?"""
    return str(getattr(function, "__name__", "")).startswith("as_strided")


def has_memory_of(stand_in: torch.Tensor, tensor: torch.Tensor, value: Callable[[Any], int] = int) -> bool:
    """Does the placeholder begin at the same place in as much memory as the tensor it stands for? A placeholder begins
    with its own elements and ends with them.

    ``value``: what a size is, where sizes are symbols. It raises a ValueError where only a run can tell.
    """
    try:
        sizes, strides = [value(s) for s in tensor.shape], [value(s) for s in tensor.stride()]
        offset, memory = value(tensor.storage_offset()), value(tensor.untyped_storage().nbytes())
    except ValueError:
        return False
    return (
        stand_in.storage_offset() == offset
        and same_strides(sizes, stand_in.stride(), strides)
        and stand_in.untyped_storage().nbytes() == memory
    )


def reaches_beside(what: str, whose: str) -> str:
    return f"{what} reaches memory beside the elements of {whose}, which a program is not given"
