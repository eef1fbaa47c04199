"""Samples whose tensors have unusual layouts in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils import _pytree as pytree

from tests.ops.opinfo import tensors


def channels_last(x: torch.Tensor) -> torch.Tensor | None:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats[x.dim()]) if x.dim() in formats else None


def permuted(x: torch.Tensor) -> torch.Tensor | None:
    order = list(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order) if x.dim() > 1 else None


def expanded(x: torch.Tensor) -> torch.Tensor | None:
    return x[:1].clone().expand_as(x) if x.dim() > 1 and x.shape[0] > 1 else None


def transposed(x: torch.Tensor) -> torch.Tensor | None:
    return x.transpose(-1, -2).contiguous().transpose(-1, -2) if x.dim() > 1 else None


def sliced(x: torch.Tensor) -> torch.Tensor | None:
    return torch.stack([x, x], -1)[..., 0] if x.dim() else None


def behind_others(x: torch.Tensor) -> torch.Tensor | None:
    """Returns a slice with an offset."""
    return torch.cat([x, x])[x.shape[0] :] if x.dim() else None


LAYOUTS = (channels_last, permuted, expanded, sliced)


def laid_out(sample: SampleInput, layout: Callable[[torch.Tensor], torch.Tensor | None]) -> SampleInput | None:
    """Returns the sample with its tensors in that layout; None if all of them have it anyway."""
    changed = False

    def move(x: torch.Tensor) -> torch.Tensor:
        nonlocal changed
        moved = layout(x.detach()) if x.layout == torch.strided and not x.is_conj() and not x.is_neg() else None
        if moved is None or (moved.stride(), moved.storage_offset()) == (x.stride(), x.storage_offset()):
            return x
        changed = True
        return moved.requires_grad_(x.requires_grad)

    input_, args, kwargs = pytree.tree_map_only(torch.Tensor, move, (sample.input, sample.args, sample.kwargs))
    return SampleInput(input_, args=tuple(args), kwargs=kwargs) if changed else None


def run(op: Any, sample: SampleInput) -> list[torch.Tensor | None]:
    """Returns the results, and the gradients of tensors that require one."""
    results = tensors(op.op(sample.input, *sample.args, **sample.kwargs))
    ends = [r for r in results if r.requires_grad]
    leaves = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    if not ends or not leaves:
        return list(results)
    seeds = [torch.empty_like(r).fill_(1) for r in ends]
    return [*results, *torch.autograd.grad(ends, leaves, seeds, allow_unused=True)]


def place(x: torch.Tensor | None) -> Any:
    """Returns the elements' places in memory, whatever the strides of dimensions with one element."""
    if x is None or x.layout != torch.strided:
        return None
    if x.numel() == 0:
        return tuple(x.shape)
    strides = tuple(int(s) if n > 1 else None for n, s in zip(x.shape, x.stride(), strict=True))
    return tuple(x.shape), strides, x.storage_offset()
