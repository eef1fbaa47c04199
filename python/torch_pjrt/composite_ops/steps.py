"""Steps of optimizers by ``torch._foreach_*`` calls, each as one group if they are enabled.

The group's operands are the tensors on the device, under the names of torch.optim's function; its results are the new
values of the tensors that it writes. Values computed on the host, from the learning rate and step counts, are scalars.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from torch_pjrt.composite_ops.asked import is_asked
from torch_pjrt.composite_ops.attributes import attribute
from torch_pjrt.composite_ops.effects import grouped_apart
from torch_pjrt.composite_ops.known import known
from torch_pjrt.composite_ops.names import STEPS

Lists = Mapping[str, list[torch.Tensor]]


@functools.cache
def keep_steps() -> None:
    """Patches torch.optim, once; the functions check at each call whether they are enabled."""
    for name, (module_name, function_name) in STEPS.items():
        module = importlib.import_module(f"torch.optim.{module_name}")
        setattr(module, function_name, kept(name, getattr(module, function_name)))


def kept(name: str, own: Callable[..., None]) -> Callable[..., None]:
    """Wraps ``own``, a function of lists of tensors, grad_scale and found_inf, and hyperparameters by name."""
    names = own.__code__.co_varnames[: own.__code__.co_argcount]

    def whole(given: Mapping[str, Any], options: Mapping[str, Any]) -> list[torch.Tensor]:
        lists = {key: list(value) for key, value in given.items() if value}
        # Step counts on the host stay there. In a compiled function all tensors are on the device.
        on_device = {key: value for key, value in lists.items() if known.is_traced() or not _is_of_host(value)}

        def step(tensors: Lists) -> list[torch.Tensor]:
            own(**{**dict.fromkeys(names), **given, **tensors}, **options)
            return []

        written = [x for key, value in on_device.items() if key != "grads" or options.get("nesterov") for x in value]
        attributes = _attributes(name, on_device, options)
        grouped_apart(name, attributes, step, (on_device,), {}, list(on_device), written=written)
        return []

    def compiled(given: Mapping[str, Any], options: Mapping[str, Any]) -> list[torch.Tensor]:
        with _compiling():
            return whole(given, options)

    known.leave(compiled)

    @functools.wraps(own)
    def run(*args: Any, **kwargs: Any) -> None:
        values = {**dict(zip(names, args, strict=False)), **kwargs}
        given = {key: value for key, value in values.items() if key in names and value is not None}
        # bool(): Dynamo of torch 2.15 has a variable of its own for `capturable`, which is no constant before.
        options = {
            key: bool(value) if isinstance(value, bool) else value for key, value in values.items() if key not in names
        }
        captured = torch.compiler.is_dynamo_compiling()
        if is_plain(given, options) and (known.captured_whole(name) if captured else is_asked(name)):
            (compiled if captured else whole)(given, options)
        else:
            own(*args, **kwargs)

    return run


def is_plain(given: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether the lists have only real tensors, with all momenta already made, and no other argument is a tensor.
    Dynamo traces this."""
    for value in given.values():
        if isinstance(value, torch.Tensor):
            return False
        for x in value:
            if not isinstance(x, torch.Tensor) or x.is_complex():
                return False
    return not any(isinstance(value, torch.Tensor) for value in options.values())


@contextmanager
def _compiling() -> Iterator[None]:
    """Sets the flag that torch.optim checks before it reads values."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def _is_of_host(tensors: list[Any]) -> bool:
    return all(isinstance(x, torch.Tensor) and x.device.type == "cpu" for x in tensors)


def _attributes(name: str, lists: Lists, kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Returns the attributes, without the learning rate, which a schedule changes."""
    plain = {key: value for key, value in kwargs.items() if isinstance(value, (bool, int, float)) and key != "lr"}
    operands = [f"{key}.{i}" for key, value in lists.items() for i in range(len(value))]
    return {key: attribute(name, key, value) for key, value in {**plain, "operands": operands}.items()}
