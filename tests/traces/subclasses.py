"""Wrapper subclasses of several kinds, for the tests."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

aten = torch.ops.aten


class Wrapper(torch.Tensor):
    """A base class for wrappers of tensors in the attributes ``NAMES``, with a ``context``."""

    NAMES: tuple[str, ...] = ()
    context: Any

    @staticmethod
    def __new__(cls, *parts: torch.Tensor, context: Any = None) -> Any:
        first = parts[0]
        made = torch.Tensor._make_wrapper_subclass(
            cls, first.shape, strides=first.stride(), dtype=first.dtype, device=first.device,
            requires_grad=first.requires_grad,
        )  # fmt: skip
        for name, part in zip(cls.NAMES, parts, strict=True):
            setattr(made, name, part)
        made.context = context
        return made

    def __init__(self, *parts: torch.Tensor, context: Any = None) -> None: ...

    def __repr__(self) -> str:  # type: ignore[override]
        return type(self).__name__

    def __tensor_flatten__(self) -> Any:
        return list(self.NAMES), self.context

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(*(inner[name] for name in cls.NAMES), context=context)


class Scaled(Wrapper):
    """``x`` times ``scale``; products are plain."""

    NAMES = ("x", "scale")
    x: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (aten.detach.default, aten.alias.default, aten.clone.default, aten.view.default, aten.t.default):
            return cls(func(args[0].x, *args[1:], **kwargs), args[0].scale)
        if func is aten.mm.default and all(isinstance(a, Scaled) for a in args):
            return (args[0].x @ args[1].x) * (args[0].scale * args[1].scale)
        args, kwargs = pytree.tree_map_only(Scaled, lambda t: t.x * t.scale, (args, kwargs))
        return func(*args, **kwargs)


class Unit(Wrapper):
    """A value with a unit in its context."""

    NAMES = ("value",)
    value: torch.Tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        units = [t.context for t in pytree.tree_leaves((args, kwargs or {})) if isinstance(t, Unit)]
        args, kwargs = pytree.tree_map_only(Unit, lambda t: t.value, (args, kwargs or {}))
        unit = "*".join(sorted(units)) if func in (aten.mul.Tensor, aten.mm.default) else units[0]
        out = func(*args, **kwargs)
        return pytree.tree_map_only(torch.Tensor, lambda t: cls(t, context=unit), out)


class Optional(Wrapper):
    """A wrapper whose second part may be missing."""

    a: torch.Tensor
    b: torch.Tensor | None

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor | None = None, context: Any = None) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, device=a.device)
        made.a, made.b = a, b
        return made

    def __tensor_flatten__(self) -> Any:
        return ["a"] if self.b is None else ["a", "b"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["a"], inner.get("b"))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        second = next(t.b for t in pytree.tree_leaves(args) if isinstance(t, Optional))
        args = pytree.tree_map_only(Optional, lambda t: t.a, args)
        return cls(func(*args, **(kwargs or {})), second)


class Wide(Unit):
    """A wrapper whose products are float64."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        return cls(out.value.double(), context=out.context) if func is aten.mul.Tensor else out


class Refuses(Unit):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.cos.default:
            return NotImplemented
        return super().__torch_dispatch__(func, types, args, kwargs)


class Silent(Unit):
    """A wrapper whose ``__torch_function__`` handles silu itself."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.silu:
            return args[0] * torch.sigmoid(args[0])
        return super().__torch_function__(func, types, args, kwargs or {})
