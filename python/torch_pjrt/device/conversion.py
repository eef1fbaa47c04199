"""``to_lazy`` and ``to_eager``: moves to the device and back."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch.utils import _pytree as pytree

T = TypeVar("T")


def _move(x: T, device: torch.device) -> T:
    if isinstance(x, torch.nn.Module):
        return x.to(device)
    moved: dict[int, Any] = {}  # by id: an object that occurs twice is moved once

    def move(leaf: Any) -> Any:
        if id(leaf) not in moved:
            moved[id(leaf)] = leaf.to(device)
        return moved[id(leaf)]

    kinds = (torch.Tensor, torch.nn.Module)
    return pytree.tree_map(lambda leaf: move(leaf) if isinstance(leaf, kinds) else leaf, x)


def to_lazy(x: T, device: Any = "pjrt") -> T:
    """Moves a tensor, a module, or lists, tuples and dicts of them to a pjrt device, where calls are lazy.

    A module is moved in place and returned: its parameters stay the same objects, so tied weights stay tied and an
    optimizer made before stays valid. A tensor is copied as by ``tensor.to()``, and gradients flow through the copy.
    Shapes and dtypes don't change. Example: ``model = torch_pjrt.to_lazy(model)``.

    Args:
        x: the tensor, module or structure. Leaves of other types are returned unchanged.
        device: ``"pjrt"``, ``"pjrt:1"`` or a ``torch.device``.

    Returns:
        ``x`` with its tensors on ``device``.

    Raises:
        ValueError: ``device`` is not a pjrt device.
    """
    target = torch.device(device)
    if target.type != "pjrt":
        raise ValueError(f"to_lazy takes to a pjrt device, got {target}; to_eager takes elsewhere")
    return _move(x, target)


def to_eager(x: T, device: Any = "cpu") -> T:
    """Runs the pending work of ``x`` and moves it to a device where calls run immediately: the inverse of ``to_lazy``.

    A module is moved in place and returned, as by ``to_lazy``; a tensor is copied. Tensors that are already on
    ``device`` are returned unchanged. Shapes and dtypes don't change. Example: ``result = torch_pjrt.to_eager(y)``.

    Args:
        x: the tensor, module or structure.
        device: any device except a pjrt device, such as ``"cuda:0"``.

    Returns:
        ``x`` with its tensors on ``device``.

    Raises:
        ValueError: ``device`` is a pjrt device.
    """
    target = torch.device(device)
    if target.type == "pjrt":
        raise ValueError(
            f"to_eager takes away from the pjrt device, got {target}; torch_pjrt.eager_mode() runs at once there"
        )
    return _move(x, target)
