"""Scalars that are inputs of a program: a learning rate, a step count, a result of ``Tensor.item()``.

Python code computes with a ``Number`` as with a float, and passes it to PyTorch where PyTorch takes a scalar. Its
arithmetic is recorded on a float64 tensor without dimensions, so every call of the program repeats it in Python's
precision.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt.errors import ValueNeeded
from torch_pjrt.program.subclasses import is_subclass


class Number(torch.SymFloat):
    """A float whose value is an input of the program, or depends on one.

    It is a ``torch.SymFloat``, so that PyTorch's operators accept it as a scalar; ``recording.Recording`` then sees it.

    Args:
        tensor: its value, float64 without dimensions: a placeholder, or computed from placeholders.
        value: the value in the captured call; None if only a run has it.
        pin: called when Python needs the value itself, as in a comparison: the program is then valid for it only.
    """

    def __init__(
        self, tensor: torch.Tensor, value: float | None = None, pin: Callable[[], object] | None = None
    ) -> None:
        self.tensor, self.value, self.pin = tensor, value, pin

    def concrete(self) -> float:
        if self.value is None:
            raise ValueNeeded(
                "the value of a tensor decides what Python does here (float(), bool(), a comparison, printing), and "
                "only a run of the program has it: compute with tensors (torch.where, torch.clamp), and return the "
                "tensor"
            )
        if self.pin is not None:
            self.pin()
        return self.value

    def combine(self, op: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        sides = (left, right)
        if not all(isinstance(side, (int, float, Number)) for side in sides):
            return NotImplemented
        values = [side.value if isinstance(side, Number) else float(side) for side in sides]
        pins = [side.pin for side in sides if isinstance(side, Number) and side.pin is not None]
        tensors = [side.tensor if isinstance(side, Number) else float(side) for side in sides]
        value = None if None in values else op(*values)
        with torch.no_grad():
            return Number(op(*tensors), value, lambda: [pin() for pin in pins])

    def __add__(self, other: Any) -> Any:
        return self.combine(lambda a, b: a + b, self, other)

    def __radd__(self, other: Any) -> Any:
        return self.combine(lambda a, b: a + b, other, self)

    def __sub__(self, other: Any) -> Any:
        return self.combine(lambda a, b: a - b, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.combine(lambda a, b: a - b, other, self)

    def __mul__(self, other: Any) -> Any:
        return self.combine(lambda a, b: a * b, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.combine(lambda a, b: a * b, other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.combine(lambda a, b: a / b, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.combine(lambda a, b: a / b, other, self)

    def __pow__(self, other: Any) -> Any:
        return self.combine(lambda a, b: a**b, self, other)

    def __rpow__(self, other: Any) -> Any:
        return self.combine(lambda a, b: a**b, other, self)

    def __neg__(self) -> Any:
        return self.combine(lambda a, b: a * b, self, -1.0)

    def __pos__(self) -> Any:
        return self

    def compare(self, op: Callable[[Any, Any], Any], other: Any) -> Any:
        """A traced tensor where only a run has a value, which a check may read (program/checks.py)."""
        if self.value is None or (isinstance(other, (Number, Integer)) and other.value is None):
            return op(self.tensor, tensor_of(other))
        return op(self.concrete(), other.concrete() if isinstance(other, Number) else other)

    def __eq__(self, other: object) -> Any:
        return self.compare(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self.compare(operator.ne, other)

    def __lt__(self, other: Any) -> Any:
        return self.compare(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self.compare(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self.compare(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self.compare(operator.ge, other)

    def __bool__(self) -> bool:
        return self.concrete() != 0.0

    def __float__(self) -> float:
        return self.concrete()

    def __int__(self) -> int:
        return int(self.concrete())

    def __trunc__(self) -> int:
        return int(self.concrete())

    def __abs__(self) -> float:
        return abs(self.concrete())

    def __hash__(self) -> int:
        return hash(self.concrete())

    def __repr__(self) -> str:
        return repr(self.concrete())

    def __str__(self) -> str:
        return repr(self.concrete())

    def __format__(self, spec: str) -> str:
        return format(self.concrete(), spec)


class Integer(torch.SymInt):
    """An integer or a bool that only a run has (``Tensor.item()``). A check may compare it, and no more."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.value = tensor, None

    @property
    def node(self) -> Any:  # that all methods of SymInt ask for
        raise ValueNeeded(
            "Tensor.item needs the value of a tensor, and only a run of the program has it: return the tensor, and "
            "read it outside"
        )

    def __eq__(self, other: object) -> Any:
        return operator.eq(self.tensor, tensor_of(other))

    def __ne__(self, other: object) -> Any:
        return operator.ne(self.tensor, tensor_of(other))

    def __lt__(self, other: Any) -> Any:
        return operator.lt(self.tensor, tensor_of(other))

    def __le__(self, other: Any) -> Any:
        return operator.le(self.tensor, tensor_of(other))

    def __gt__(self, other: Any) -> Any:
        return operator.gt(self.tensor, tensor_of(other))

    def __ge__(self, other: Any) -> Any:
        return operator.ge(self.tensor, tensor_of(other))

    def __bool__(self) -> bool:
        return bool(self.tensor != 0)

    def __hash__(self) -> int:
        return hash(self.node)


for _asked in ("int", "index", "float", "repr", "str", "format", "trunc", "round", "floor", "ceil", "complex"):
    setattr(Integer, f"__{_asked}__", lambda self, *_: self.node)


def tensor_of(value: Any) -> Any:
    return value.tensor if isinstance(value, (Number, Integer)) else value


def check_integers(value: Any) -> None:
    """Raises ValueNeeded where one is given to a function of PyTorch's."""
    if isinstance(value, Integer):
        value.node  # noqa: B018
    if isinstance(value, (list, tuple)):
        for each in value:
            check_integers(each)
    elif isinstance(value, dict):
        check_integers(list(value.values()))


def holds_number(value: Any) -> bool:
    if isinstance(value, Number):
        return True
    if isinstance(value, (list, tuple)):
        return any(holds_number(v) for v in value)
    return isinstance(value, dict) and any(holds_number(v) for v in value.values())


def concrete(value: Any) -> Any:
    """Returns ``value`` with floats in place of Numbers."""
    if isinstance(value, Number):
        return value.concrete()
    if isinstance(value, (list, tuple)):
        return type(value)(concrete(v) for v in value)
    return {k: concrete(v) for k, v in value.items()} if isinstance(value, dict) else value


# The operators with tensors in place of their scalars; `n` makes a tensor of a scalar.
OPS: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda n, self, other, alpha=None: self + (n(other) if alpha is None else n(alpha) * n(other)),
    "sub": lambda n, self, other, alpha=None: self - (n(other) if alpha is None else n(alpha) * n(other)),
    "mul": lambda n, self, other: self * n(other),
    "div": lambda n, self, other: self / n(other),
    "pow": lambda n, self, exponent: n(self) ** n(exponent),
    "addcmul": lambda n, self, tensor1, tensor2, value=1: self + n(value) * n(tensor1) * n(tensor2),
    "addcdiv": lambda n, self, tensor1, tensor2, value=1: self + n(value) * n(tensor1) / n(tensor2),
    "lerp": lambda n, self, end, weight: self + n(weight) * (n(end) - self),
    "rsub": lambda n, self, other: n(other) - self,
    "full_like": lambda n, self, fill_value: torch.zeros_like(n(self)) + n(fill_value),
}
for _name, _same in {
    "__add__": "add",
    "__radd__": "add",
    "__sub__": "sub",
    "__rsub__": "rsub",
    "__mul__": "mul",
}.items():
    OPS[_name] = OPS[_same]
OPS["__rmul__"], OPS["__truediv__"], OPS["__pow__"] = OPS["mul"], OPS["div"], OPS["pow"]
OPS["true_divide"] = OPS["div"]
OPS["__rtruediv__"] = OPS["__rdiv__"] = lambda n, self, other: n(other) / self
OPS["__rpow__"] = lambda n, self, other: n(other) ** self
IN_PLACE = {"__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "div", "__idiv__": "div"}

# Arguments that are scalars in every overload, by name and position (None: by name only). PyTorch reads the value of a
# tensor that is passed for one, such as an optimizer's learning rate.
NUMBERS: dict[str, tuple[str, int | None]] = {
    "add": ("alpha", None),
    "sub": ("alpha", None),
    "addcmul": ("value", 3),
    "addcdiv": ("value", 3),
    "full_like": ("fill_value", 1),
}


def _base(name: str) -> tuple[str, bool]:
    """Returns the functional operator on one tensor that ``name`` stands for, and whether it works in place."""
    name = name.removeprefix("_foreach_")
    if name in IN_PLACE:
        return IN_PLACE[name], True
    in_place = name.endswith("_") and not name.endswith("__")
    return name[:-1] if in_place else name, in_place


def _number(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dim() == 0 and value.is_floating_point():
        with torch.no_grad():
            return Number(value.detach().double())
    return value


def read_numbers(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of the operator ``name`` with Numbers where PyTorch would read the value of a tensor."""
    first = args[0][0] if args and isinstance(args[0], (list, tuple)) and args[0] else next(iter(args), None)
    if not isinstance(first, torch.Tensor) or not first.is_floating_point():
        return args, kwargs
    key, position = NUMBERS.get(_base(name)[0], ("", None))
    args = tuple(_number(a) if i == position else a for i, a in enumerate(args))
    return args, {k: _number(v) if k == key else v for k, v in kwargs.items()}


def _one(compute: Callable[..., torch.Tensor], in_place: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = next(a for a in args if isinstance(a, torch.Tensor))
    dtype = torch.result_type(tensor, 1.0)
    exact = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype  # PyTorch's kernels compute in it

    def n(value: Any) -> Any:
        value = value.tensor if isinstance(value, Number) else value
        return value.to(exact) if isinstance(value, torch.Tensor) else value

    result = compute(n, *(a if a is not tensor else n(a) for a in args), **kwargs).to(dtype)
    return args[0].copy_(result) if in_place else result


def _is_subclass(values: Any) -> bool:
    return any(map(is_subclass, pytree.tree_leaves(values)))


def apply(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the operator ``name`` (of a torch function) on arguments with Numbers.

    Returns NotImplemented for operators and arguments that it doesn't know."""
    out = kwargs.get("out")
    kwargs = {k: v for k, v in kwargs.items() if k != "out"}
    each = name.startswith("_foreach_")
    base, in_place = _base(name)
    compute = OPS.get(base)
    if compute is None or out is not None or not kwargs.keys().isdisjoint(("rounding_mode", "dtype")):
        return NotImplemented
    if in_place and _is_subclass(args[1:]) and not _is_subclass(args[:1]):
        return NotImplemented  # a subclass defines itself how it writes to another tensor
    if not each:
        return _one(compute, in_place, args, kwargs)
    if "scalars" in kwargs:
        kwargs["value"] = kwargs.pop("scalars")
    count = max(len(a) for a in args if isinstance(a, (list, tuple)))

    def at(value: Any, i: int) -> Any:
        return value[i] if isinstance(value, (list, tuple)) else value

    results = [
        _one(compute, in_place, tuple(at(a, i) for a in args), {k: at(v, i) for k, v in kwargs.items()})
        for i in range(count)
    ]
    return None if in_place else tuple(results)
