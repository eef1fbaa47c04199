"""Cases of losses that the samples of PyTorch's OpInfo database omit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import torch_pjrt

pytestmark = pytest.mark.each_way


def assert_same_loss(loss: Callable[..., torch.Tensor], x: torch.Tensor, *args: Any, reduction: str) -> None:
    """Asserts the same loss and gradient of x on the device and on the CPU."""
    host, device = x.clone().requires_grad_(), x.to("pjrt").requires_grad_()
    expected = loss(host, *args, reduction=reduction)
    moved = [a.to("pjrt") if isinstance(a, torch.Tensor) else a for a in args]
    got = loss(device, *moved, reduction=reduction)
    torch.testing.assert_close(got.cpu(), expected, equal_nan=True)
    weights = torch.randn(expected.shape)
    expected.backward(weights)
    got.backward(weights.to("pjrt"))
    torch.testing.assert_close(device.grad.cpu(), host.grad)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (1, 3), ()])
def test_multilabel_margin_loss(shape: tuple[int, ...], reduction: str) -> None:
    """Targets end at the first -1. PyTorch's own decomposition, which torch.compile traces, does not stop there."""
    torch.manual_seed(0)
    torch_pjrt.reset_metrics()
    for _ in range(8):
        x, target = torch.randn(shape), torch.randint(-1, shape[-1] if shape else 1, shape)
        assert_same_loss(functional.multilabel_margin_loss, x, target, reduction=reduction)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


def test_multilabel_margin_loss_refuses() -> None:
    x = torch.randn(2, 5, device="pjrt")
    with pytest.raises(RuntimeError, match="inconsistent target size"):
        functional.multilabel_margin_loss(x, torch.zeros(2, 4, dtype=torch.long, device="pjrt"))
    with pytest.raises(RuntimeError, match="expected scalar type Long"):
        functional.multilabel_margin_loss(x, torch.zeros(2, 5, dtype=torch.int32, device="pjrt"))
    with pytest.raises(RuntimeError, match="index 9 is out of bounds"):
        functional.multilabel_margin_loss(x, torch.full((2, 5), 9, device="pjrt")).item()


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.sampled(3)
def test_multi_margin_loss(reduction: str, weighted: bool, p: int) -> None:
    torch.manual_seed(0)
    torch_pjrt.reset_metrics()
    weight = torch.rand(5) if weighted else None
    for shape, margin in (((5,), 1.0), ((4, 5), 0.3), ((1, 5), -0.5)):
        x, target = torch.randn(shape), torch.randint(0, 5, shape[:-1])
        assert_same_loss(functional.multi_margin_loss, x, target, p, margin, weight, reduction=reduction)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_the_shape_of_one_multi_margin_loss(reduction: str) -> None:
    """The shape is the target's, whatever the scores' is."""
    for shape in ((), (5,), (1, 5)):
        for target in (torch.tensor(0), torch.tensor([0])):
            assert_same_loss(functional.multi_margin_loss, torch.randn(shape), target, reduction=reduction)


@pytest.mark.parametrize("ignore_index", [-100, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.sampled(3)
def test_cross_entropy_with_smoothed_labels(reduction: str, weighted: bool, ignore_index: int) -> None:
    """PyTorch decomposes the mean with class weights into masked_select, whose result's size depends on data."""
    torch.manual_seed(0)
    torch_pjrt.reset_metrics()
    weight = torch.rand(5) if weighted else None
    loss = functools.partial(functional.cross_entropy, ignore_index=ignore_index, label_smoothing=0.1)
    for shape in ((5,), (6, 5), (6, 5, 3, 2)):
        target = torch.randint(0, 5, shape[:-1] if len(shape) < 3 else (shape[0], *shape[2:]))
        assert_same_loss(loss, torch.randn(shape), target, weight, reduction=reduction)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy_of_nothing(reduction: str, weighted: bool) -> None:
    """The mean is NaN."""
    losses, grads = [], []
    for device in ("cpu", "pjrt"):
        scores = torch.randn(0, 5, device=device, requires_grad=True)
        target = torch.zeros(0, dtype=torch.long, device=device)
        weight = torch.ones(5, device=device) if weighted else None
        loss = functional.cross_entropy(scores, target, weight, reduction=reduction, label_smoothing=0.1)
        losses.append(loss.detach().cpu())
        grads.append(torch.autograd.grad(loss.sum(), scores)[0].cpu())
    for got in (losses, grads):
        torch.testing.assert_close(got[1], got[0], equal_nan=True)


@pytest.mark.parametrize("rows", [0, 3])
def test_class_weights_of_another_dtype(rows: int) -> None:
    scores, target = torch.randn(rows, 5), torch.zeros(rows, dtype=torch.long)
    weight = torch.ones(5, dtype=torch.half)
    for device in ("cpu", "pjrt"):
        with pytest.raises(RuntimeError, match="expected scalar type Float but found Half"):
            functional.nll_loss(scores.to(device), target.to(device), weight.to(device))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
@pytest.mark.parametrize("loss", [functional.mse_loss, functional.smooth_l1_loss, functional.huber_loss])
def test_losses_of_nothing(loss: Callable[..., torch.Tensor], shape: tuple[int, ...], reduction: str) -> None:
    """PyTorch's Python functions, which compute shapes, divide by the number of elements."""
    assert_same_loss(loss, torch.ones(shape), torch.ones(shape), reduction=reduction)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}
