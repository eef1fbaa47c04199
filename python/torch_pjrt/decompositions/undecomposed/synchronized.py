"""The ops of ``torch.nn.SyncBatchNorm``, for which PyTorch has kernels for GPUs only, and no decompositions.

One of them writes running statistics that its schema doesn't name. Statistics of 16-bit inputs are float32."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import composition


def _computed(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _by_channel(statistic: Tensor, x: Tensor) -> Tensor:
    """Reshapes [C] to [1, C, 1, …], of the rank of x: [N, C, …]."""
    return statistic.reshape(1, -1, *[1] * (x.dim() - 2))


def _but_channels(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


@composition("batch_norm_stats")
def batch_norm_stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Returns this rank's mean and 1 / sqrt(variance + eps) of each channel."""
    variance, mean = torch.var_mean(_computed(input), _but_channels(input), correction=0)
    return mean, (variance + eps).rsqrt()


@composition("batch_norm_gather_stats_with_counts")
def batch_norm_gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Returns the statistics of all ranks, from the mean and invstd [ranks, C] and the number of elements per channel
    [ranks] of each."""
    count = counts.to(mean.dtype)[:, None]
    total = count.sum()
    center = (count * mean).sum(0) / total
    squares = (count * (invstd.square().reciprocal() - eps + (mean - center).square())).sum(0)
    if running_mean is not None:
        running_mean.lerp_(center.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((squares / (total - 1)).to(running_var.dtype), momentum)
    return center, (squares / total + eps).rsqrt()


@composition("batch_norm_elemt")
def batch_norm_elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    result = (_computed(input) - _by_channel(mean, input)) * _by_channel(invstd, input)
    if weight is not None:
        result = result * _by_channel(weight, input)
    if bias is not None:
        result = result + _by_channel(bias, input)
    return result.to(input.dtype)


@composition("batch_norm_backward_reduce")
def batch_norm_backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns this rank's sums of the gradient and of its product with the distance from the mean, and the gradients of
    weight and bias."""
    grad = _computed(grad_out)
    sum_dy = grad.sum(_but_channels(input))
    sum_dy_xmu = (grad * (_computed(input) - _by_channel(mean, input))).sum(_but_channels(input))
    dtype = mean.dtype if weight is None else weight.dtype
    return sum_dy, sum_dy_xmu, (sum_dy_xmu * invstd).to(dtype), sum_dy.to(dtype)


@composition("batch_norm_backward_elemt")
def batch_norm_backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """Returns the input's gradient; the sums are over all ranks."""
    total = count.sum().to(mean.dtype)
    scale = invstd if weight is None else invstd * weight
    slope = sum_dy_xmu / total * invstd.square()
    centered = _computed(input) - _by_channel(mean, input)
    grad = _computed(grad_out) - _by_channel(sum_dy / total, input) - centered * _by_channel(slope, input)
    return (grad * _by_channel(scale, input)).to(input.dtype)
