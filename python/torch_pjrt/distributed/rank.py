"""A number that differs between the ranks of a world, such as a rank's coordinate in a mesh.

Python runs once for all ranks of a world in one process, so a rank can't be an ``int``: a branch on it would decide for
all ranks. Arithmetic on such a number returns another one. Tensors take it as a 0-d tensor that every rank looks up in
a table. Code that needs a single number gets an error at its line.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import torch

from torch_pjrt import _C


class PerRank:
    """One integer or bool per rank, ``values[rank]``; it can be used like an integer or a 0-d tensor."""

    __slots__ = ("_values",)
    __hash__ = None  # type: ignore[assignment]  # numbers that are equal have equal hashes

    def __init__(self, values: Iterable[int]) -> None:
        self._values = tuple(values)

    @property
    def values(self) -> tuple[int, ...]:
        return self._values

    def tensor(self) -> torch.Tensor:
        """Returns a 0-d tensor of dtype int64, or bool, with each rank's number."""
        like = torch.empty((), dtype=torch.int64, device="pjrt")
        table: torch.Tensor = torch.ops.pjrt_world.per_rank(like, [int(value) for value in self._values])
        return table.bool() if isinstance(self._values[0], bool) else table

    def _refuse(self, what: str) -> NoReturn:
        raise RuntimeError(
            f"a rank was taken for {what}: Python runs once for all {len(self._values)} ranks of this world, and here "
            f"they have {list(self._values)}. Code that all ranks share needs no rank: x takes each rank's part with "
            "torch_pjrt.distributed.split(x, mesh), a loader for each rank's data is made with "
            "torch_pjrt.distributed.load_by_rank(make, mesh), and DTensor shards by placements; "
            "torch.distributed.get_rank() == 0 is true in the one process there is, and torch.sym_min and sym_max do "
            "for ranks what min and max do. For code that asks its rank, start a process for each with torchrun"
        )

    def __bool__(self) -> bool:
        self._refuse("a condition")

    def __index__(self) -> int:
        self._refuse("one integer")

    def __int__(self) -> int:
        self._refuse("one integer")

    def __float__(self) -> float:
        self._refuse("one number")

    def __truediv__(self, _: Any) -> Any:
        self._refuse("one number")

    def __neg__(self) -> Any:
        return per_rank(-value for value in self.values)

    def __repr__(self) -> str:
        return f"PerRank({list(self._values)})"

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replaces it by a tensor in arguments that take tensors, and refuses it as an integer, such as a size."""

        def of(value: Any) -> Any:
            if isinstance(value, PerRank):
                return value.tensor()
            return type(value)(map(of, value)) if type(value) in (list, tuple) else value

        if function in (torch.sym_min, torch.sym_max):
            return _chosen(min if function is torch.sym_min else max, *args)
        if function in (torch.narrow, torch.Tensor.narrow):
            return _narrow(*args, **(kwargs or {}))
        return function(*of(args), **{name: of(value) for name, value in (kwargs or {}).items()})


def _narrow(tensor: torch.Tensor, dim: int, start: Any, length: Any) -> torch.Tensor:
    if isinstance(length, PerRank):
        length._refuse("the length of a slice, and a world in one process has shards of one size")
    if not isinstance(start, PerRank):
        dim._refuse("a dimension")  # type: ignore[attr-defined]
    part: torch.Tensor = torch.ops.pjrt_world.narrow(tensor, dim, start.tensor(), length)
    return part


def _chosen(choose: Callable[[int, int], int], one: Any, other: Any) -> Any:
    ranks = range(_C.world_size())
    of = [value.values if isinstance(value, PerRank) else (value,) * len(ranks) for value in (one, other)]
    return per_rank(map(choose, *of))


def per_rank(values: Iterable[int]) -> Any:
    """Returns these numbers as a PerRank, or as one number if all are equal."""
    values = tuple(values)
    return values[0] if len(set(values)) == 1 else PerRank(values)


def _elementwise(name: str) -> Callable[..., Any]:
    function = getattr(operator, f"__{name}__")

    def both(self: PerRank, other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return NotImplemented  # the tensor's own operator then calls __torch_function__
        if isinstance(other, PerRank):
            return per_rank(map(function, self.values, other.values))
        if not isinstance(other, int):
            return NotImplemented
        return per_rank(function(value, other) for value in self.values)

    return both


def _reflected(name: str) -> Callable[..., Any]:
    function = getattr(operator, f"__{name}__")

    def both(self: PerRank, other: Any) -> Any:
        return per_rank(function(other, value) for value in self.values) if isinstance(other, int) else NotImplemented

    return both


for _name in ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift"):
    setattr(PerRank, f"__{_name}__", _elementwise(_name))
    setattr(PerRank, f"__r{_name}__", _reflected(_name))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(PerRank, f"__{_name}__", _elementwise(_name))


class GlobalRank(PerRank):
    """The result of ``get_rank()``. In comparisons with 0, as a truth value and as text it is the process's number, 0,
    because programs ask so which process prints and writes. In all other places it is each rank's number."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return "0"

    def __format__(self, how: str) -> str:
        return format(0, how)


def _compared(name: str) -> Callable[..., Any]:
    function, each = getattr(operator, name), getattr(PerRank, f"__{name}__")

    def compare(self: GlobalRank, other: Any) -> Any:
        return function(0, 0) if type(other) is int and other == 0 else each(self, other)

    return compare


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(GlobalRank, f"__{_name}__", _compared(_name))


def select(tensor: torch.Tensor, dim: int, index: Any) -> torch.Tensor:
    """Returns ``tensor.select(dim, index)``, with each rank's own index."""
    if not isinstance(index, PerRank):
        return tensor.select(dim, index)
    return tensor.index_select(dim, index.tensor().reshape(1)).squeeze(dim)
