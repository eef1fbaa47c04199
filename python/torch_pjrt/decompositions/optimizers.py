"""The steps of optimizers with ``fused=True``: one node each (``src/device/fused_optimizers.cpp``), which is this.

They compute as the CPU's fused kernels do: 8- and 16-bit numbers in float32, nothing at all where ``found_inf`` is 1.
The device takes the scale from gradients that have one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import decomposition, meta


def _wide(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.float() if tensor.dtype.itemsize < 4 else tensor for tensor in tensors]


def _write(old: list[Tensor], new: list[Tensor] | tuple[Tensor, ...], found_inf: Tensor | None) -> None:
    if found_inf is not None:
        keep = found_inf == 1
        new = [torch.where(keep, before, after) for before, after in zip(old, new, strict=True)]
    torch._foreach_copy_(old, new)


def _operands(
    params: list[Tensor],
    grads: list[Tensor],
    weight_decay: float,
    maximize: bool,
    grad_scale: Tensor | None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Both as they count in the step."""
    p, g = _wide(params), _wide(grads)
    if grad_scale is not None:
        g = torch._foreach_div(g, grad_scale)
    if maximize:
        g = torch._foreach_neg(g)
    if weight_decay:
        g = torch._foreach_add(g, torch._foreach_mul(p, weight_decay))
    return p, g


def _adam(
    decoupled: bool,
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    *,
    lr: Tensor,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    p, g = _operands(params, grads, 0.0 if decoupled else weight_decay, maximize, grad_scale)
    if weight_decay and decoupled:
        p = torch._foreach_mul(p, 1 - lr * weight_decay)
    m = torch._foreach_lerp(_wide(exp_avgs), g, 1 - beta1)
    v = torch._foreach_mul(_wide(exp_avg_sqs), beta2)
    v = torch._foreach_addcmul(v, g, g, 1 - beta2)
    largest = v
    if amsgrad:
        largest = torch._foreach_maximum(_wide(max_exp_avg_sqs), v)
        _write(max_exp_avg_sqs, largest, found_inf)
    steps = [step.to(mean.dtype) for step, mean in zip(state_steps, m, strict=True)]
    correction1 = [1 - beta1**step for step in steps]
    correction2 = [(1 - beta2**step).sqrt() for step in steps]
    denominator = torch._foreach_add(torch._foreach_div(torch._foreach_sqrt(largest), correction2), eps)
    step_sizes = [lr / correction for correction in correction1]
    change = torch._foreach_mul(torch._foreach_div(m, denominator), step_sizes)
    _write(params, torch._foreach_sub(p, change), found_inf)
    _write(exp_avgs, m, found_inf)
    _write(exp_avg_sqs, v, found_inf)


@decomposition("_fused_adam_")
def fused_adam_(*lists: list[Tensor], **options: object) -> None:
    """``torch.optim.Adam``: lists of tensors of the parameters' sizes, and of steps."""
    _adam(False, *lists, **options)  # type: ignore[arg-type]


@decomposition("_fused_adamw_")
def fused_adamw_(*lists: list[Tensor], **options: object) -> None:
    """``torch.optim.AdamW``: lists of tensors of the parameters' sizes, and of steps."""
    _adam(True, *lists, **options)  # type: ignore[arg-type]


@decomposition("_fused_sgd_")
def fused_sgd_(
    params: list[Tensor],
    grads: list[Tensor],
    momentum_buffer_list: list[Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """``torch.optim.SGD``: lists of tensors of the parameters' sizes; no buffers without momentum."""
    p, g = _operands(params, grads, weight_decay, maximize, grad_scale)
    if momentum:
        buffers = g
        if not is_first_step:
            buffers = torch._foreach_mul(_wide(momentum_buffer_list), momentum)
            buffers = torch._foreach_add(buffers, torch._foreach_mul(g, 1 - dampening))
        g = torch._foreach_add(g, torch._foreach_mul(buffers, momentum)) if nesterov else buffers
        _write(momentum_buffer_list, buffers, found_inf)
    _write(params, torch._foreach_sub(p, torch._foreach_mul(g, lr)), found_inf)


@decomposition("_fused_adagrad_")
def fused_adagrad_(
    params: list[Tensor],
    grads: list[Tensor],
    state_sums: list[Tensor],
    state_steps: list[Tensor],
    *,
    lr: Tensor,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """``torch.optim.Adagrad``: lists of tensors of the parameters' sizes, and of steps."""
    p, g = _operands(params, grads, weight_decay, maximize, grad_scale)
    sums = torch._foreach_addcmul(_wide(state_sums), g, g)
    rates = [lr / (1 + (step - 1) * lr_decay).to(total.dtype) for step, total in zip(state_steps, sums, strict=True)]
    change = torch._foreach_div(torch._foreach_mul(g, rates), torch._foreach_add(torch._foreach_sqrt(sums), eps))
    _write(params, torch._foreach_sub(p, change), found_inf)
    _write(state_sums, sums, found_inf)


def _writes(*lists: list[Tensor], **options: object) -> None:
    """What is written keeps its form."""


for _name in ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"):
    meta(f"{_name}.tensor_lr")(_writes)
