"""Hooks before and after each step of an optimizer."""

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
    """Returns the plain tensors of the group's parameters that are on the device: a DTensor's is its local tensor."""
    return [leaf for leaf in leaves(group["params"]) if is_ours(leaf)]


def make_momentum(optimizer: torch.optim.SGD) -> None:
    """Makes SGD's momentum buffers as zeros.

    SGD's first momentum is a copy of the gradient, which equals its sum with zeros. With zeros, the first step is the
    same program as all others."""
    for group in optimizer.param_groups:
        if not group["momentum"] or group["dampening"]:
            continue
        for p in parameters(group):
            if p.grad is not None and is_ours(p.grad) and "momentum_buffer" not in optimizer.state[p]:
                optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p.grad)


def begin(optimizer: torch.optim.Optimizer) -> None:
    """Begins a step; first state is data, not calls of the step (``src/device/start/iterations.cpp``)."""
    first = not optimizer.state
    _C.begin_optimizer_step(first)
    if first and type(optimizer) is torch.optim.SGD:
        make_momentum(optimizer)


def apart(optimizer: torch.optim.Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
    """Wraps a step's closure, whose forward and backward are not part of the optimizer's step."""

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
    """Ends a step of training: starts the pending work of the optimizer's parameters, then all other pending work.

    Each step is then the same graph, however rarely the loss is read."""
    if torch.compiler.is_compiling():
        return
    groups = [] if _C.tracing() else optimizer.param_groups  # traced calls are not started
    _C.end_optimizer_step([p for group in groups for p in plain_parameters(group)])


def install() -> None:
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
