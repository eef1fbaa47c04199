"""Ops that PyTorch decomposes before they are recorded, kept whole as groups if they are enabled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._C import DispatchKey

from torch_pjrt.composite_ops.asked import is_asked
from torch_pjrt.composite_ops.attributes import attribute
from torch_pjrt.composite_ops.effects import grouped_apart
from torch_pjrt.composite_ops.grouped import grouped
from torch_pjrt.composite_ops.known import known
from torch_pjrt.composite_ops.names import KEPT
from torch_pjrt.composite_ops.steps import keep_steps
from torch_pjrt.decompositions.recurrent.modules import KERNELS as RECURRENT

# Recorded as a node of its own on the device, like its derivative (device/override/linear.cpp).
RECORDED = ("aten.linear.default",)
KEYS = ("AutogradPrivateUse1", "PrivateUse1")
ATTENTION = "aten.scaled_dot_product_attention.default"
# The device's op of attention with dropout, which takes a random key, as its backward does.
KEYED = "aten._scaled_dot_product_fused_attention_overrideable.default"

_entered = threading.local()  # ops whose own kernels run in this thread


def overload(name: str) -> Any:
    _, op, which = name.split(".")
    return getattr(getattr(torch.ops.aten, op), which)


def values_of(op: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Returns the arguments by their names in the schema, and in its order."""
    declared = op._schema.arguments
    given = dict(zip((argument.name for argument in declared), args, strict=False)) | dict(kwargs)
    return {argument.name: given.get(argument.name, argument.default_value) for argument in declared}


def attributes_of(op: Any, values: Mapping[str, Any], named: bool) -> dict[str, str]:
    """Returns values that aren't tensors by their names in the schema, and ``operands`` if these don't determine the
    tensors, or if ``named``."""
    given = {}
    names: list[str] = []
    for key, value in values.items():
        if isinstance(value, torch.dtype):
            value = str(value).removeprefix("torch.")
        if isinstance(value, torch.Tensor):
            names.append(key)
        elif isinstance(value, (list, tuple)) and any(isinstance(one, torch.Tensor) for one in value):
            names += [f"{key}.{i}" for i in range(len(value))]
        elif _is_plain(value):
            given[key] = attribute(op.name(), key, value)
    declared = [argument.name for argument in op._schema.arguments if "Tensor" in str(argument.type)]
    if named or names != declared[: len(names)]:
        given["operands"] = attribute(op.name(), "operands", names)
    return given


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(one, (bool, int, float)) for one in value)
    return isinstance(value, (bool, int, float, str))


def drops_out(values: Mapping[str, Any]) -> bool:
    several = values.get("num_layers", 2) > 1  # a recurrent network drops only between its layers
    return bool(values.get("dropout_p", values.get("dropout", 0.0))) and bool(values.get("train", True)) and several


def written_by(values: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the running statistics, which the op may write; in evaluation PyTorch writes unchanged values."""
    moved = [values.get(name) for name in ("running_mean", "running_var")]
    return [one for one in moved if one is not None]


def fits(values: Mapping[str, Any]) -> bool:
    """Whether the device would run it as the op with a key; this depends on sizes and dtypes only."""
    choice = torch.library.get_kernel("aten::_fused_sdp_choice", "PrivateUse1")
    keys = torch._C.DispatchKeySet(DispatchKey.PrivateUse1)
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    options = {name: values[name] for name in ("scale", "enable_gqa")}
    chosen: int = choice.call_boxed(keys, *(values[name] for name in names), **options)
    return chosen == torch.nn.attention.SDPBackend.OVERRIDEABLE.value


def keyed_attention(values: Mapping[str, Any]) -> torch.Tensor:
    """Calls attention as PyTorch does on the device."""
    query, mask = values["query"], values["attn_mask"]
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, float("-inf"))
    results: tuple[torch.Tensor, ...] = overload(KEYED)(
        query, values["key"], values["value"], mask, values["dropout_p"], values["is_causal"], scale=values["scale"]
    )
    return results[0]


def is_wanted(name: str) -> bool:
    return is_asked(name) or (name == ATTENTION and is_asked(KEYED))


def kernel(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a kernel for an op that makes a group of ``own``, the op's own kernel."""
    op = overload(name)
    called = [argument.name for argument in op._schema.arguments]

    def without_groups(*args: Any, **kwargs: Any) -> Any:
        before = getattr(_entered, "names", ())
        _entered.names = (*before, name)
        try:
            return own(*args, **kwargs)
        finally:
            _entered.names = before

    def run(*args: Any, **kwargs: Any) -> Any:
        if name in getattr(_entered, "names", ()) or not is_wanted(name):
            return own(*args, **kwargs)
        values = values_of(op, args, kwargs)
        drops, written = drops_out(values), written_by(values)
        if drops and name == ATTENTION:
            return keyed_attention(values) if known.is_traced() and fits(values) else own(*args, **kwargs)
        attributes = attributes_of(op, values, named=drops or bool(written))
        if drops or written:
            return grouped_apart(name, attributes, without_groups, args, kwargs, called, written=written, drops=drops)
        return grouped(name, attributes, without_groups, args, kwargs, called)

    return run


class _Kernels:
    """The device's kernels, registered with PyTorch once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.library: torch.library.Library | None = None  # destroying it would unregister the kernels

    def install(self) -> None:
        with self.lock:
            if self.library is not None:
                return
            keep_steps()
            self.library = torch.library.Library("aten", "IMPL")
            for name in KEPT:
                if name in RECORDED:
                    continue
                op = overload(name)
                for key in KEYS:
                    own = _own(op, key)
                    self.library.impl(op.name().removeprefix("aten::"), kernel(name, own), key, allow_override=True)


_kernels = _Kernels()


def install() -> None:
    """Installs the kernels of ops and steps, once; they check at each call whether they are enabled."""
    _kernels.install()


def _own(op: Any, key: str) -> Callable[..., Any]:
    if op in RECURRENT:  # under a dispatch mode, PyTorch calls the last registered kernel instead of a Python kernel
        return RECURRENT[op]
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key):
        found = torch.library.get_kernel(op.name(), key)
        keys = torch._C.DispatchKeySet(getattr(DispatchKey, key))
        return lambda *args, **kwargs: found.call_boxed(keys, *args, **kwargs)
    return lambda *args, **kwargs: op._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def traced_kernels(others: Mapping[Any, Callable[..., Any] | None]) -> dict[Any, Callable[..., Any]]:
    """Returns by op the kernels of enabled composites for AOTAutograd, instead of PyTorch's own and ``others``."""

    def own(op: Any) -> Callable[..., Any]:
        return others.get(op) or (
            lambda *args, **kwargs: op._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        )

    return {overload(name): kernel(name, own(overload(name))) for name in KEPT if is_wanted(name)}
