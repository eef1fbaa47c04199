"""Steps of optimizers with ``fused=True``, each one node (``device/override/optimizers.cpp``), decomposed here.

They compute as the CPU's fused kernels do: 8- and 16-bit floats in float32, and no update where ``found_inf`` is 1.
Gradients are divided by the scale if there is one. Hyperparameters are float64 tensors without dimensions, so that a
schedule compiles nothing; whether weights decay at all is part of the program.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_pjrt.decompositions.table import own_op

_AMP = "Tensor? grad_scale=None, Tensor? found_inf=None"
_ADAM = (
    "(Tensor(a!)[] self, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
    "Tensor(d!)[] max_exp_avg_sqs, Tensor[] state_steps, *, Tensor lr, Tensor beta1, Tensor beta2, "
    f"Tensor weight_decay, Tensor eps, bool decays, bool amsgrad, bool maximize, {_AMP}) -> ()"
)
_SGD = (
    "(Tensor(a!)[] self, Tensor[] grads, Tensor(b!)[] momentum_buffer_list, *, Tensor weight_decay, Tensor momentum, "
    f"Tensor lr, Tensor dampening, bool decays, bool nesterov, bool maximize, bool is_first_step, {_AMP}) -> ()"
)
_ADAGRAD = (
    "(Tensor(a!)[] self, Tensor[] grads, Tensor(b!)[] state_sums, Tensor[] state_steps, *, Tensor lr, Tensor lr_decay, "
    f"Tensor weight_decay, Tensor eps, bool decays, bool maximize, {_AMP}) -> ()"
)


def _wide(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.float() if tensor.dtype.itemsize < 4 else tensor for tensor in tensors]


def _write(old: list[Tensor], new: list[Tensor] | tuple[Tensor, ...], found_inf: Tensor | None) -> None:
    if found_inf is not None:
        keep = found_inf == 1
        new = [torch.where(keep, before, after) for before, after in zip(old, new, strict=True)]
    torch._foreach_copy_(old, new)


def _plus(tensors: list[Tensor] | tuple[Tensor, ...], number: Tensor) -> list[Tensor]:
    return [tensor + number for tensor in tensors]  # _foreach_add would read the scalar


def _operands(
    params: list[Tensor],
    grads: list[Tensor],
    weight_decay: Tensor | None,
    maximize: bool,
    grad_scale: Tensor | None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Returns parameters and gradients in the dtype of the computation, with scale, sign and decay applied."""
    p, g = _wide(params), _wide(grads)
    if grad_scale is not None:
        g = torch._foreach_div(g, grad_scale)
    if maximize:
        g = torch._foreach_neg(g)
    if weight_decay is not None:
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
    beta1: Tensor,
    beta2: Tensor,
    weight_decay: Tensor,
    eps: Tensor,
    decays: bool,
    amsgrad: bool,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    p, g = _operands(params, grads, weight_decay if decays and not decoupled else None, maximize, grad_scale)
    if decays and decoupled:
        p = torch._foreach_mul(p, 1 - lr * weight_decay)
    means, squares = _wide(exp_avgs), torch._foreach_mul(_wide(exp_avg_sqs), beta2)
    m = torch._foreach_add(means, torch._foreach_mul(torch._foreach_sub(g, means), 1 - beta1))
    v = torch._foreach_add(squares, torch._foreach_mul(torch._foreach_mul(g, g), 1 - beta2))
    largest = v
    if amsgrad:
        largest = torch._foreach_maximum(_wide(max_exp_avg_sqs), v)
        _write(max_exp_avg_sqs, largest, found_inf)
    deviations = [(1 - beta2**step).sqrt() for step in state_steps]
    denominator = _plus(torch._foreach_div(torch._foreach_sqrt(largest), deviations), eps)
    step_sizes = [lr / (1 - beta1**step) for step in state_steps]
    change = torch._foreach_mul(torch._foreach_div(m, denominator), step_sizes)
    _write(params, torch._foreach_sub(p, change), found_inf)
    _write(exp_avgs, m, found_inf)
    _write(exp_avg_sqs, v, found_inf)


@own_op(f"fused_adam_{_ADAM}")
def fused_adam_(*lists: list[Tensor], **options: object) -> None:
    """``torch.optim.Adam``: lists of tensors of the parameters' sizes, and of steps."""
    _adam(False, *lists, **options)  # type: ignore[arg-type]


@own_op(f"fused_adamw_{_ADAM}")
def fused_adamw_(*lists: list[Tensor], **options: object) -> None:
    """``torch.optim.AdamW``: lists of tensors of the parameters' sizes, and of steps."""
    _adam(True, *lists, **options)  # type: ignore[arg-type]


@own_op(f"fused_sgd_{_SGD}")
def fused_sgd_(
    params: list[Tensor],
    grads: list[Tensor],
    momentum_buffer_list: list[Tensor],
    *,
    weight_decay: Tensor,
    momentum: Tensor,
    lr: Tensor,
    dampening: Tensor,
    decays: bool,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """``torch.optim.SGD``: lists of tensors of the parameters' sizes; no buffers without momentum."""
    p, g = _operands(params, grads, weight_decay if decays else None, maximize, grad_scale)
    if momentum_buffer_list:
        buffers = g
        if not is_first_step:
            buffers = torch._foreach_mul(_wide(momentum_buffer_list), momentum)
            buffers = torch._foreach_add(buffers, torch._foreach_mul(g, 1 - dampening))
        g = torch._foreach_add(g, torch._foreach_mul(buffers, momentum)) if nesterov else buffers
        _write(momentum_buffer_list, buffers, found_inf)
    _write(params, torch._foreach_sub(p, torch._foreach_mul(g, lr)), found_inf)


@own_op(f"fused_adagrad_{_ADAGRAD}")
def fused_adagrad_(
    params: list[Tensor],
    grads: list[Tensor],
    state_sums: list[Tensor],
    state_steps: list[Tensor],
    *,
    lr: Tensor,
    lr_decay: Tensor,
    weight_decay: Tensor,
    eps: Tensor,
    decays: bool,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """``torch.optim.Adagrad``: lists of tensors of the parameters' sizes, and of steps."""
    p, g = _operands(params, grads, weight_decay if decays else None, maximize, grad_scale)
    sums = torch._foreach_addcmul(_wide(state_sums), g, g)
    rates = [lr / (1 + (step - 1) * lr_decay) for step in state_steps]
    change = torch._foreach_div(torch._foreach_mul(g, rates), _plus(torch._foreach_sqrt(sums), eps))
    _write(params, torch._foreach_sub(p, change), found_inf)
    _write(state_sums, sums, found_inf)
