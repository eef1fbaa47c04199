"""Arguments of traced calls: placeholders for tensors, the program's device, and the memory that views may reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

DEVICE = torch.device("privateuseone")  # "pjrt"; this module is imported before the backend is renamed

Layout = tuple[Sequence[int], Sequence[int]]  # sizes, strides


def make_placeholder(
    trace: Any, tensor: torch.Tensor, layout: Layout | None = None, device: torch.device | None = None
) -> torch.Tensor:
    """Returns a tensor on the device without a value, the next argument of the program of ``trace``.

    Args:
        trace: a ``_C.Trace``.
        tensor: the tensor that it replaces, of any shape and dtype; it may be fake.
        layout: sizes and strides as integers, if the tensor's are symbolic.
        device: the device of arguments. Default: the tensor's.
    """
    sizes, strides = layout or (tensor.shape, tensor.stride())
    where = device or tensor.device
    result: torch.Tensor = trace.tensor(
        where, tensor.dtype, list(sizes), list(strides), tensor.is_conj(), tensor.is_neg()
    )
    return result


def naming_device(arguments: Any, means: Callable[[torch.device], torch.device] = lambda _: DEVICE) -> Any:
    """Returns arguments of a call, in any structure, with each device replaced, by default by the program's."""
    return pytree.tree_map_only(torch.device, means, arguments)


def on_device(values: Any) -> Any:
    """Moves tensors in any structure to the program's device: constants, and values computed from scalars only."""
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(DEVICE), values)


def same_strides(sizes: Sequence[int], some: Sequence[int], others: Sequence[int]) -> bool:
    """Whether elements have the same places under both strides; dimensions of size 1 may have any."""
    return all(a == b for size, a, b in zip(sizes, some, others, strict=True) if size != 1)


def reaches(function: Any) -> bool:
    """Whether it makes a view of the tensor's memory, which may be larger than the tensor."""
    return str(getattr(function, "__name__", "")).startswith("as_strided")


def has_memory_of(stand_in: torch.Tensor, tensor: torch.Tensor, value: Callable[[Any], int] = int) -> bool:
    """Whether the placeholder has as much memory as its tensor, and begins at the same place in it. A placeholder's
    memory has exactly its elements.

    ``value`` evaluates a size that may be symbolic. It raises a ValueError for sizes that only a run can determine.
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
