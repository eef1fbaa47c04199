"""torchvision's losses of boxes (giou, diou, ciou) without boolean masks, whose result sizes depend on data.

The area that a pair of boxes shares is an expression instead: zero where the pair doesn't overlap."""

from __future__ import annotations

import functools
from types import ModuleType

import torch
from torch import Tensor

from torch_pjrt.adapt.after_import import after_import


def _inter_union(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the areas of the intersection and the union of pairs of boxes (..., 4) in x1, y1, x2, y2: two tensors
    (...)."""
    low = torch.max(boxes1[..., :2], boxes2[..., :2])
    high = torch.min(boxes1[..., 2:], boxes2[..., 2:])
    overlap = (high > low).all(-1, keepdim=True)
    shared = _area(torch.where(overlap, high - low, 0))
    covered = _area(boxes1[..., 2:] - boxes1[..., :2]) + _area(boxes2[..., 2:] - boxes2[..., :2]) - shared
    return shared, covered


def _area(sides: Tensor) -> Tensor:
    return sides[..., 0] * sides[..., 1]


def _without_masks(module: ModuleType) -> None:
    inner = module._loss_inter_union

    @functools.wraps(inner)
    def inter_union(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
        if boxes1.device.type == "pjrt" or boxes2.device.type == "pjrt":
            return _inter_union(boxes1, boxes2)
        result: tuple[Tensor, Tensor] = inner(boxes1, boxes2)
        return result

    module._loss_inter_union = inter_union  # type: ignore[attr-defined]


def install() -> None:
    after_import("torchvision.ops._utils", _without_masks)
