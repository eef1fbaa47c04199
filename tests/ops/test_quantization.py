"""Fake quantization on the device: values, masks and gradients are the CPU's."""

from __future__ import annotations

import pytest
import torch

import torch_pjrt

X = torch.tensor([[0.25, 0.35, -0.15, 0.5, -9.0], [9.0, 0.0, float("nan"), -0.45, 0.05]])


def results(device: str, quantize: str, dtype: torch.dtype, zero: int) -> list[torch.Tensor]:
    x = X.to(device, dtype, copy=True).requires_grad_()
    if quantize == "per_channel":
        scale, points = torch.tensor([0.1, 0.3], device=device), torch.tensor([zero, -zero], device=device)
        y = torch.fake_quantize_per_channel_affine(x, scale, points.int(), 0, -8, 7)
    elif quantize == "per_channel, floats":
        scale, points = torch.ones(5, device=device), torch.full((5,), zero + 0.5, device=device)
        y = torch.fake_quantize_per_channel_affine(x, scale, points, 1, -8, 7)
    elif quantize == "tensors":
        scale, points = torch.tensor([0.1], device=device), torch.tensor([zero], device=device, dtype=torch.int32)
        y = torch.fake_quantize_per_tensor_affine(x, scale, points, -8, 7)
    else:
        y = torch.fake_quantize_per_tensor_affine(x, 0.1, zero, -8, 7)
    y.sum().backward()
    assert x.grad is not None
    return [y.detach().cpu(), x.grad.cpu()]


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("quantize", ["number", "tensors", "per_channel", "per_channel, floats"])
def test_fake_quantize(quantize: str, dtype: torch.dtype, zero: int) -> None:
    torch_pjrt.reset_metrics()
    for got, expected in zip(
        results("pjrt", quantize, dtype, zero), results("cpu", quantize, dtype, zero), strict=True
    ):
        torch.testing.assert_close(got, expected, equal_nan=True)
    assert torch_pjrt.metrics()["host_fallbacks"] == {}


@pytest.mark.parametrize("enabled", [0, 1])
def test_switched_off(enabled: int) -> None:
    answers = []
    for device in ("cpu", "pjrt"):
        scale, zero, on = (torch.tensor([v], device=device) for v in (0.1, 0, enabled))
        op = torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
        answers.append([y.cpu() for y in op(X[0].to(device), scale, zero.int(), on, -8, 7)])
    torch.testing.assert_close(answers[1], answers[0])
