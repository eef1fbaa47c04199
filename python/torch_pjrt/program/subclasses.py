"""Tensors that consist of others: subclasses that wrap them (``__tensor_flatten__``), and sparse tensors. The plain
tensors in them, their *leaves*, are arguments and results of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

PLAIN = (torch.Tensor, torch.nn.Parameter)
OF_PYTORCH = ("FakeTensor", "FunctionalTensor")


SPARSE_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def is_sparse(value: torch.Tensor) -> bool:
    """Whether it consists of strided tensors without being a subclass."""
    return value.layout in SPARSE_PARTS


def is_stand_in(value: Any) -> bool:
    """Whether it is a placeholder of PyTorch's own tracing."""
    return type(value).__name__ in OF_PYTORCH and isinstance(value, torch.Tensor)


def is_subclass(value: Any) -> bool:
    """Whether it is a tensor that wraps others."""
    if type(value) in PLAIN or not isinstance(value, torch.Tensor) or is_stand_in(value):
        return False
    return is_traceable_wrapper_subclass(value)


def is_compound(value: Any) -> bool:
    """Whether it is a tensor that consists of others: a subclass or a sparse tensor."""
    if not isinstance(value, torch.Tensor) or is_stand_in(value):
        return False
    return is_subclass(value) or (type(value) in PLAIN and is_sparse(value))


def sparse_parts_of(value: torch.Tensor) -> tuple[dict[str, Any], Any]:
    """Returns indices and values, which share the tensor's memory, and the remaining properties."""
    inner = value.detach()
    about = (value.layout, value.is_coalesced() if value.layout == torch.sparse_coo else None)
    return {name: getattr(inner, name)() for name in SPARSE_PARTS[value.layout]}, about


def sparse_of(parts: dict[str, Any], context: Any, size: Any) -> torch.Tensor:
    """Returns the sparse tensor of these parts."""
    layout, is_coalesced = context
    *indices, values = parts.values()
    if layout == torch.sparse_coo:
        made = torch.sparse_coo_tensor(*indices, values, size, is_coalesced=is_coalesced, check_invariants=False)
    else:
        made = torch.sparse_compressed_tensor(*indices, values, size, layout=layout, check_invariants=False)
    return made


def is_closed(value: Any) -> bool:
    """Whether it is a tensor that wraps others without naming them, such as a MaskedTensor."""
    if type(value) in PLAIN or not isinstance(value, torch.Tensor) or is_stand_in(value):
        return False
    dispatches = type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    return dispatches and not is_traceable_wrapper_subclass(value)


def name_of(value: Any) -> str:
    return type(value).__name__


def parts_of(value: Any) -> tuple[dict[str, Any], Any]:
    """Returns the result of ``__tensor_flatten__``: the attributes that hold tensors, and the context.

    Raises:
        TypeError: the result has the wrong form, or names attributes that don't exist.
    """
    if is_sparse(value):
        return sparse_parts_of(value)
    flattened = value.__tensor_flatten__()
    try:
        names, context = flattened
        parts = {name: getattr(value, name) for name in names}
    except (TypeError, ValueError):
        raise TypeError(
            f"{name_of(value)}.__tensor_flatten__ gives {flattened!r}: it is to give a list of the names of the "
            "attributes that hold tensors, and a context"
        ) from None
    except AttributeError as error:
        raise TypeError(
            f"{name_of(value)}.__tensor_flatten__ names an attribute that the tensor has not ({error}): leave out what "
            "is None or absent"
        ) from None
    for name, part in parts.items():
        if not isinstance(part, torch.Tensor) and not is_opaque(part):
            raise TypeError(
                f"{name_of(value)}.__tensor_flatten__ names '{name}', which is a {name_of(part)}: it names attributes "
                "that hold tensors, and everything else goes into the context"
            )
    return parts, context


def is_opaque(part: Any) -> bool:
    """Whether PyTorch takes the object as a part or an input although it isn't a tensor, such as a DTensor's mesh."""
    from torch._library.fake_class_registry import FakeScriptObject
    from torch._library.opaque_object import is_opaque_type

    return isinstance(part, FakeScriptObject) or is_opaque_type(type(part))


def real_of(part: Any) -> Any:
    """Returns the object that ``part`` stands for while PyTorch traces."""
    return getattr(part, "real_obj", part)


def put_together(like: Any, parts: dict[str, Any], context: Any, size: Any = None, stride: Any = None) -> Any:
    """Calls ``__tensor_unflatten__`` on parts like those of ``like``.

    Raises:
        TypeError: it fails, or returns something else.
    """
    if is_sparse(like):
        return sparse_of(parts, context, like.shape if size is None else size)
    cls = type(like)
    size, stride = (like.shape if size is None else size), (like.stride() if stride is None else stride)
    try:
        made = cls.__tensor_unflatten__(parts, context, size, stride)
    except Exception as error:
        raise TypeError(
            f"{cls.__name__}.__tensor_unflatten__ fails on what __tensor_flatten__ gave "
            f"({', '.join(parts) or 'no tensors'}, context {context!r}): {type(error).__name__}: {error}"
        ) from error
    if type(made) is not cls:
        raise TypeError(
            f"{cls.__name__}.__tensor_unflatten__ gives a {name_of(made)}, and has to give a {cls.__name__} again: a "
            "class that inherits it says so with its own"
        )
    return made


def leaves_of(value: torch.Tensor, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """Yields the plain tensors in it, each with the path of attributes that leads to it; a plain tensor itself."""
    if is_closed(value):
        for name, part in vars(value).items():
            if isinstance(part, torch.Tensor):
                yield from leaves_of(part, (*path, name))
        return
    if not is_compound(value):
        yield path, value
        return
    for name, part in parts_of(value)[0].items():
        if isinstance(part, torch.Tensor):
            yield from leaves_of(part, (*path, name))


def leaves(values: Any) -> list[torch.Tensor]:
    """Returns the plain tensors in a sequence of tensors."""
    return [leaf for value in values for _, leaf in leaves_of(value)]


def with_leaves(value: torch.Tensor, put: Callable[[torch.Tensor, tuple[str, ...]], torch.Tensor]) -> torch.Tensor:
    """Returns the tensor with each leaf replaced by ``put(leaf, path)``; ``requires_grad`` is unchanged."""

    def made(value: torch.Tensor, path: tuple[str, ...]) -> torch.Tensor:
        if not is_compound(value):
            return put(value, path)
        parts, context = parts_of(value)
        inner = {n: made(p, (*path, n)) if isinstance(p, torch.Tensor) else p for n, p in parts.items()}
        return put_together(value, inner, context)

    if not is_compound(value):
        return put(value, ())
    with torch.no_grad():
        result = made(value, ())
    if isinstance(value, torch.nn.Parameter) and not isinstance(result, torch.nn.Parameter):
        result._is_param = True
    if value.requires_grad and value.is_leaf:
        result.requires_grad_()
    return result


def check(value: Any, where: str) -> None:
    """Raises a TypeError if ``__tensor_flatten__`` and ``__tensor_unflatten__`` don't match."""
    if not is_subclass(value):
        return
    try:
        parts, context = parts_of(value)
        with torch.no_grad():
            put_together(value, parts, context)
    except TypeError as error:
        raise TypeError(f"{where}: {error}") from error
    for name, part in parts.items():
        check(part, f"{where}, .{name}")


@dataclass(frozen=True)
class Form:
    """The properties of a compound tensor that are constants of a program: all but its leaves."""

    cls: type
    parts: tuple[tuple[str, Any], ...]  # names, each with the part's form, which is None for a plain tensor
    context: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    def __hash__(self) -> int:  # contexts need not be hashable
        return hash((self.cls, self.size, self.dtype))


def form_of(value: Any, sizes: bool = True) -> Form | None:
    """Returns the value's form; without ``sizes``, which symbolic sizes need, because comparing them adds guards."""
    if not is_compound(value):
        return None
    parts, context = parts_of(value)
    forms = tuple((name, form_of(part, sizes)) for name, part in parts.items())
    if not sizes:
        return Form(type(value), forms, context, (), (), value.dtype, value.requires_grad)
    stride = () if is_sparse(value) else value.stride()
    return Form(type(value), forms, context, tuple(value.shape), stride, value.dtype, value.requires_grad)


def differences(name: str, old: Form | None, new: Form | None) -> Iterator[str]:
    """Yields the differences that need another program: ``"x: context 'm' → 'kg'"``."""
    if old is None or new is None or old.cls is not new.cls:
        if old is not new:
            yield f"{name}: {old.cls.__name__ if old else 'Tensor'} → {new.cls.__name__ if new else 'Tensor'}"
        return
    for what in ("context", "size", "stride", "dtype", "requires_grad"):
        if getattr(old, what) != getattr(new, what):
            yield f"{name}: {what} {getattr(old, what)!r} → {getattr(new, what)!r}"
    names, now = [n for n, _ in old.parts], [n for n, _ in new.parts]
    if names != now:
        yield f"{name}: made of {', '.join(names) or 'nothing'} → {', '.join(now) or 'nothing'}"
        return
    for (part, before), (_, after) in zip(old.parts, new.parts, strict=True):
        yield from differences(f"{name}.{part}", before, after)


class Template:
    """Rebuilds a result from its leaves."""

    def __init__(self, value: torch.Tensor) -> None:
        self.like = type(value)
        self.is_sparse = is_sparse(value)
        self.size, self.stride = value.shape, () if self.is_sparse else value.stride()
        parts, self.context = parts_of(value)
        self.parts: dict[str, Any] = {n: self._inside(part) for n, part in parts.items()}

    @staticmethod
    def _inside(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            return Template(part) if is_compound(part) else None
        return part

    def build(self, leaves: Iterator[torch.Tensor]) -> torch.Tensor:
        parts = {}
        for name, inside in self.parts.items():
            parts[name] = next(leaves) if inside is None else inside
            if isinstance(inside, Template):
                parts[name] = inside.build(leaves)
        if self.is_sparse:
            return sparse_of(parts, self.context, self.size)
        result: torch.Tensor = self.like.__tensor_unflatten__(parts, self.context, self.size, self.stride)
        return result


def is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether both are one tensor, or views of the same memory, because the parts of a sparse tensor are made on each
    access."""
    if a is b:
        return True
    if type(a) is not torch.Tensor or type(b) is not torch.Tensor or a.layout != b.layout or a.shape != b.shape:
        return False
    return a.data_ptr() == b.data_ptr() and a.stride() == b.stride() and a.dtype == b.dtype


class Watched:
    """A compound tensor in a program's state: ``[None]`` is its form while it consists of the same tensors, and None
    afterwards."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value, self.form = value, form_of(value)
        self.leaves = [leaf for _, leaf in leaves_of(value)]

    def __getitem__(self, _: None) -> Form | None:
        now = [leaf for _, leaf in leaves_of(self.value)]
        same = len(now) == len(self.leaves) and all(map(is_same, now, self.leaves))
        return self.form if same and form_of(self.value) == self.form else None
