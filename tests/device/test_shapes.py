"""A new shape of a common call calls no Python function of PyTorch for its type: that takes a millisecond."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch.nn import functional as F


def norm(f: Callable[..., torch.Tensor], *args: Any, affine: bool = True) -> Callable[[torch.Tensor], object]:
    """Returns a function that computes forward and gradients, with a weight and a bias."""

    def run(x: torch.Tensor) -> object:
        channels = x.shape[-1] if f is F.layer_norm else x.shape[1]
        given = [torch.ones(channels, device=x.device, dtype=x.dtype).requires_grad_() for _ in range(2 * affine)]
        x = x.detach().requires_grad_()
        named = dict(zip(("weight", "bias"), given, strict=False))
        y = f(x, *([(channels,)] if f is F.layer_norm else args), **named)
        return [y, *torch.autograd.grad(y.sum(), [x, *given])]

    return run


def batch_norm(x: torch.Tensor, training: bool = True, **how: torch.Tensor) -> torch.Tensor:
    statistics = [torch.ones(x.shape[1], device=x.device, dtype=x.dtype) for _ in range(2)]
    return F.batch_norm(x, *statistics, training=training, **how)


def embedded(x: torch.Tensor) -> list[torch.Tensor]:
    weight = x.new_ones(9, x.shape[0]).requires_grad_()
    y = F.embedding((x[0] * 4).long().abs(), weight)
    return [y, *torch.autograd.grad(y.sum(), [weight])]


def projected(x: torch.Tensor) -> list[torch.Tensor]:
    weight, bias = x.new_ones(x.shape[0], x.shape[-1]).requires_grad_(), x.new_ones(x.shape[0]).requires_grad_()
    y = F.linear(x, weight, bias) + F.linear(x, weight)
    return [y, *torch.autograd.grad(y, [weight, bias], torch.ones_like(y))]


def stepped(foreach: bool, x: torch.Tensor) -> list[torch.Tensor]:
    parameters = [x.clone().contiguous().requires_grad_() for _ in range(2)]
    optimizer = torch.optim.Adam(parameters, foreach=foreach, amsgrad=False)
    for p in parameters:
        p.grad = torch.ones_like(p)
    optimizer.step()
    return [p.detach() for p in parameters]


CALLS: dict[str, Callable[[torch.Tensor], object]] = {
    "relu": F.relu,
    "numbers": lambda x: [x + 1, x - 2.5, 3 - x, x * 2, x / 3, x % 2, abs(x), x.sum(), x.mean(), x.max(), x.min()],
    "integers": lambda x: [y := torch.arange(x.numel(), device=x.device), y + 1, y * 2, 3 - y, y % 5, abs(y), y.max()],
    "numbers, in place": lambda x: [x.clone().add_(1), x.clone().sub_(2.5), x.clone().mul_(2), x.clone().div_(3)],
    "random": lambda x: [x.clone().normal_()[:0], x.clone().uniform_(-1, 2)[:0], x.clone().exponential_()[:0]],
    "bools": lambda x: [y := x.isnan(), ~y, y.logical_not(), (x > 0).logical_and(x), x.logical_or(x[:1]), y.sum()],
    "whole numbers": lambda x: [x // 2, x // x[:, :1], x.long() // 3, x.bool().sum(), x.int().sum(), x.count_nonzero()],
    "spread": lambda x: [x.std(), x.var(), x.std(1), x.var((0, 2), keepdim=True), *torch.var_mean(x, -1, correction=0)],
    "sums of exponentials": lambda x: [x.logsumexp(1), x.logsumexp((0, -1), keepdim=True)],
    "sorted": lambda x: [*x.sort(), *x.sort(0, descending=True), *x.sort(dim=1, stable=True), x.argsort(-2)],
    "stacked": lambda x: [torch.stack([y := x.contiguous(), y]), torch.stack([y, y], -1), torch.stack([y[0], y[1]], 2)],
    "rolled": lambda x: [(y := x.contiguous()).roll(1), y.roll(-1, 0), y.roll((1, 2), (0, -1))],
    "products": lambda x: [x[0, 0] @ x[0, 0, 0], x[0, 0, 0].dot(x[1, 0, 0]), torch.eye(4, 5, device=x.device)],
    "activations": lambda x: [
        *(f(x) for f in (F.hardswish, F.hardtanh, F.relu6, torch.logit)),
        F.logsigmoid(x.contiguous()),
        F.prelu(x, x[0, :1, 0, 0]),
        F.prelu(x, x[0, :, 0, 0]),
    ],
    "losses": lambda x: [
        f(x.sigmoid().contiguous(), x.sigmoid().contiguous(), reduction=reduction)
        for f in (F.huber_loss, F.binary_cross_entropy, F.binary_cross_entropy_with_logits)
        for reduction in ("none", "mean", "sum")
    ],
    "attention": lambda x: [
        F.scaled_dot_product_attention(x, x, x),
        F.scaled_dot_product_attention(x, x[:, :, :3], x[:, :, :3], is_causal=True),
    ],
    "ranges": lambda x: [
        torch.arange(5.0, device=x.device),
        torch.arange(0.5, 3, 0.4, device=x.device),
        torch.arange(3, -2, -1.5, device=x.device, dtype=x.dtype),
    ],
    "sizes of complex numbers": lambda x: x.to(torch.complex64).abs(),
    "filled": lambda x: [torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 2), x.clone().fill_(3)],
    "rows": lambda x: [x.index_select(1, torch.tensor([1, 0]).to(x.device)), x.index_select(-1, x[0, 0, 0].long() * 0)],
    "indices": lambda x: [
        (y := x.contiguous())[i := torch.tensor([1, 0]).to(x.device)],
        *(y[:, i], y[:, i, i], y[i, :, i], y[i[:, None], i], y[None, i, :, i[0]], y[..., i.int()], y[i, :, None, i]),
    ],
    "a mask": lambda x: (x[x > 0], x[x[:, 0, 0, 0] > 0])[:0],
    "embedding": lambda x: embedded(x),
    "linear": lambda x: projected(x.contiguous()),
    "steps": lambda x: [stepped(foreach, x) for foreach in (False, True)],
    "where": lambda x: torch.where(x > 0, x, x[:, :1]),
    "where a number": lambda x: torch.where(x > 0, x, 0.5),
    "masked_fill": lambda x: x.masked_fill(x > 0, 2),
    "masked_fill by a tensor": lambda x: x.masked_fill(x > 0, x.sum()),
    "dropout": lambda x: F.dropout(x)[:0],
    "layer_norm": norm(F.layer_norm),
    "layer_norm, plain": norm(F.layer_norm, affine=False),
    "batch_norm": norm(batch_norm),
    "batch_norm, evaluation": norm(lambda x, **how: batch_norm(x, False, **how)),
    "group_norm": norm(F.group_norm, 2),
    "group_norm, plain": norm(F.group_norm, 2, affine=False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_no_python_and_the_same_types(name: str, dtype: torch.dtype) -> None:
    asked = []

    def look(frame: FrameType, event: str, arg: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and ("torch/_refs" in file or "torch/_decomp" in file or "_meta_reg" in file):
            asked.append(f"{file}:{frame.f_code.co_name}")

    whole = torch.arange(16 * 3 * 5 * 7, dtype=dtype).sin().view(16, 3, 5, 7)
    CALLS[name](whole[:4, :2].to("pjrt"))
    for x in (whole[:5, :2], whole.movedim(1, -1)[:, :4].contiguous().movedim(-1, 1)[:, :2]):
        of_cpu = torch.utils._pytree.tree_leaves(CALLS[name](x))
        x = x.to("pjrt")
        sys.setprofile(look)
        try:
            ours = torch.utils._pytree.tree_leaves(CALLS[name](x))
        finally:
            sys.setprofile(None)
        assert not asked
        assert [(y.dtype, y.shape) for y in ours] == [(y.dtype, y.shape) for y in of_cpu]
        if "group_norm" not in name:  # PyTorch makes its input contiguous but on the CPU
            assert [y.stride() for y in ours] == [y.stride() for y in of_cpu]
