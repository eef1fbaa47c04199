"""What is done before and after each step of an optimizer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torch_pjrt import _C
from torch_pjrt.program.subclasses import leaves


def is_ours(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "pjrt" and type(tensor) in (torch.nn.Parameter, torch.Tensor)


def parameters(group: dict[str, Any]) -> list[torch.Tensor]:
    return [p for p in group["params"] if is_ours(p)]


def plain_parameters(group: dict[str, Any]) -> list[torch.Tensor]:
    """Those, and what the others are made of, as the local tensor of a DTensor."""
    return [leaf for leaf in leaves(group["params"]) if is_ours(leaf)]


def make_momentum(optimizer: torch.optim.SGD) -> None:
    """SGD's first momentum is a copy of the gradient. As a sum with zeros, which is the same, the first step is the
    program of all that follow."""
    for group in optimizer.param_groups:
        if not group["momentum"] or group["dampening"]:
            continue
        for p in parameters(group):
            if p.grad is not None and is_ours(p.grad) and "momentum_buffer" not in optimizer.state[p]:
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p.grad)


def begin(optimizer: torch.optim.Optimizer) -> None:
    """The state begins with data, not with calls of the first step (``src/device/start/optimizer_step.cpp``)."""
    first = not optimizer.state
    _C.begin_optimizer_step(first)
    if first and type(optimizer) is torch.optim.SGD:
        make_momentum(optimizer)


def apart(optimizer: torch.optim.Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
    """The closure that a step is given: forward and backward, which are no part of the optimizer."""

    @functools.wraps(closure)
    def run() -> Any:
        _C.end_optimizer_step([])
        loss = closure()
        begin(optimizer)
        return loss

    return run


def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
    if torch.compiler.is_compiling():
        return None
    begin(optimizer)
    if callable(closure := kwargs.get("closure")):
        return args, {**kwargs, "closure": apart(optimizer, closure)}
    if len(args) > 1 and callable(closure := args[1]):
        return (args[0], apart(optimizer, closure), *args[2:]), kwargs
    return None


def after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A step of training ends here, so what is pending for its parameters is started, and then what is pending beside.
    Each step is then the same graph, however seldom the loss is read."""
    if torch.compiler.is_compiling():
        return
    groups = [] if _C.tracing() else optimizer.param_groups  # what is traced is not started
    _C.end_optimizer_step([p for group in groups for p in plain_parameters(group)])


def install() -> None:
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
