"""``torch.nn.MultiMarginLoss`` and ``MultiLabelMarginLoss``, by their formulas, forward and backward.

PyTorch's own decompositions differ from its kernels: the result of a single row has another shape, and
MultiLabelMarginLoss counts targets after the first -1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition


def _check_scores(self: Tensor) -> None:
    torch._check(self.dim() <= 2 and self.shape[-1:] != (0,), lambda: f"Expected non-empty vector or matrix with "
                 f"optional 0-dim batch size, but got: {list(self.shape)}")  # fmt: skip


def _reduced(loss: Tensor, is_one: bool, reduction: int) -> Tensor:
    """``loss``: one scalar a row. ``is_one``: a single row's has no dimensions. ``reduction``: ``at::Reduction``."""
    if reduction:
        return loss.mean() if reduction == 1 else loss.sum()
    return loss.reshape(()) if is_one else loss


def _weighted(grad: Tensor, grad_output: Tensor, self: Tensor, reduction: int) -> Tensor:
    """``grad``: (N, C), for rows whose loss is a sum over classes instead of their mean."""
    scale = 1 / (grad.numel() if reduction == 1 else grad.shape[1])
    return (grad * scale * grad_output.reshape(-1, 1)).reshape(self.shape)


def _other_margins(self: Tensor, target: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (N, 1) targets; (N, C) a mask of the other classes; margin - x[target] + x."""
    x, t = torch.atleast_2d(self), target.reshape(-1, 1)
    others = torch.arange(x.shape[1], device=x.device) != t
    return t, others, margin - x.gather(1, t) + x


@decomposition("multi_margin_loss", meta=True)
def multi_margin_loss(
    self: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """``self``: (N, C) or (C), ``target``: (N) or (), ``weight``: (C)."""
    torch._check(p in (1, 2), lambda: "only p == 1 and p == 2 supported")
    _check_scores(self)
    x = torch.atleast_2d(self)
    torch._check(target.dim() <= 1 and target.numel() == x.shape[0], lambda: f"inconsistent target size, expected "
                 f"{x.shape[0]} but got {list(target.shape)}")  # fmt: skip
    if weight is not None:
        wanted = f"inconsistent weight size, expected {x.shape[1]} but got {list(weight.shape)}"
        torch._check(weight.dim() <= 1 and weight.numel() == x.shape[1], lambda: wanted)
    t, others, margins = _other_margins(self, target, margin)
    losses = torch.where(others, margins.clamp_min(0), 0) ** p
    if weight is not None:
        losses = losses * weight.reshape(-1)[t]
    return _reduced(losses.mean(1), target.dim() == 0, reduction)


@decomposition("multi_margin_loss_backward", meta=True)
def multi_margin_loss_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    p: float,
    margin: float,
    weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    """The gradient of ``self``: each margin above 0 pulls its class down and the target up."""
    t, others, margins = _other_margins(self, target, margin)
    slopes = (others & (margins > 0)).to(self.dtype)
    if p == 2:
        slopes = 2 * slopes * margins
    if weight is not None:
        slopes = slopes * weight.reshape(-1)[t]
    return _weighted(slopes.scatter(1, t, -slopes.sum(1, keepdim=True)), grad_output, self, reduction)


def _margins(self: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (N, C) targets, 0 from the first negative one on; a mask of those before it; 1 - x[target] + x, (N,
    targets, C)."""
    x, t = torch.atleast_2d(self), torch.atleast_2d(target)
    places = torch.arange(x.shape[1], device=x.device)
    counts = places < torch.where(t < 0, places, x.shape[1]).amin(-1, keepdim=True)
    t = torch.where(counts, t, 0)
    return t, counts, 1 - x.gather(1, t)[..., None] + x[:, None]


@decomposition("multilabel_margin_loss_forward", meta=True)
def multilabel_margin_loss_forward(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """``self``, ``target``: (N, C) or (C). Returns the loss and, in target's shape, 1 for target classes, else 0."""
    _check_scores(self)
    torch._check(target.shape == self.shape, lambda: f"inconsistent target size: {list(target.shape)} for input of "
                 f"size: {list(self.shape)}")  # fmt: skip
    torch._check(target.dtype == torch.int64, lambda: f"expected scalar type Long but found {target.dtype}")
    t, counts, margins = _margins(self, target)
    classes = torch.arange(margins.shape[-1], device=self.device)
    is_target = ((t[..., None] == classes) & counts[..., None]).any(1)
    loss = torch.where(counts[..., None] & ~is_target[:, None], margins.clamp_min(0), 0).sum((1, 2)) / classes.numel()
    return _reduced(loss, self.dim() < 2, reduction), is_target.to(self.dtype).reshape(target.shape)


@decomposition("multilabel_margin_loss_backward", meta=True)
def multilabel_margin_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    """The gradient of ``self``: each margin above 0 pulls its class down and its target up."""
    t, counts, margins = _margins(self, target)
    active = (counts[..., None] & (torch.atleast_2d(is_target)[:, None] == 0) & (margins > 0)).to(self.dtype)
    return _weighted(active.sum(1).scatter_add(1, t, -active.sum(2)), grad_output, self, reduction)
