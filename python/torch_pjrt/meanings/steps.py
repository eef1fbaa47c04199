"""Steps of optimizers that PyTorch makes of ``torch._foreach_*`` calls, as one group each where they are asked for.

The group's operands are the tensors on the device, by their names in torch.optim's function; its results are the new
values of those that it writes to. What is computed on the host, of the learning rate and the counters, are numbers.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torch_pjrt.meanings.effects import grouped_apart
from torch_pjrt.meanings.groups import attribute, is_asked
from torch_pjrt.meanings.names import STEPS

Lists = Mapping[str, list[torch.Tensor]]


def keep_steps() -> None:
    """In torch.optim, once: they ask at each call."""
    for name, (module_name, function_name) in STEPS.items():
        module = importlib.import_module(f"torch.optim.{module_name}")
        setattr(module, function_name, kept(name, getattr(module, function_name)))


def kept(name: str, own: Callable[..., None]) -> Callable[..., None]:
    """``own``: of lists of tensors, grad_scale and found_inf, and hyperparameters by name."""
    names = own.__code__.co_varnames[: own.__code__.co_argcount]

    @functools.wraps(own)
    def run(*args: Any, **kwargs: Any) -> None:
        if torch.compiler.is_compiling() or not is_asked(name):
            return own(*args, **kwargs)
        given = dict(zip(names, args, strict=False))
        lists = {key: list(value) for key, value in given.items() if isinstance(value, (list, tuple)) and value}
        # Counters on the host stay there.
        on_device = {key: value for key, value in lists.items() if not _is_of_host(value)}
        if not _fits(given, on_device, kwargs):
            return own(*args, **kwargs)

        def step(tensors: Lists) -> list[torch.Tensor]:
            own(**{**given, **tensors}, **kwargs)
            return []

        written = [x for key, value in on_device.items() if key != "grads" or kwargs.get("nesterov") for x in value]
        grouped_apart(
            name, _attributes(name, on_device, kwargs), step, (on_device,), {}, list(on_device), written=written
        )
        return None

    return run


def _is_of_host(tensors: list[Any]) -> bool:
    return all(isinstance(x, torch.Tensor) and x.device.type == "cpu" for x in tensors)


def _fits(given: Mapping[str, Any], lists: Mapping[str, list[Any]], kwargs: Mapping[str, Any]) -> bool:
    """Plain tensors of this device alone, among them no momentum that is still to be made."""
    has_scalars = any(isinstance(value, torch.Tensor) for value in (*given.values(), *kwargs.values()))
    tensors = [x for value in lists.values() for x in value]
    kinds = (torch.Tensor, torch.nn.Parameter)
    return (
        not has_scalars
        and bool(tensors)
        and all(type(x) in kinds and x.device.type == "pjrt" and not x.is_complex() for x in tensors)
    )


def _attributes(name: str, lists: Lists, kwargs: Mapping[str, Any]) -> dict[str, str]:
    """The learning rate is none: a schedule changes it."""
    plain = {key: value for key, value in kwargs.items() if isinstance(value, (bool, int, float)) and key != "lr"}
    operands = [f"{key}.{i}" for key, value in lists.items() for i in range(len(value))]
    return {key: attribute(name, key, value) for key, value in {**plain, "operands": operands}.items()}
