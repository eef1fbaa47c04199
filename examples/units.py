"""A tensor with a unit: a wrapper subclass, compiled, and the trace that says what became of it.

./dev python examples/units.py
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

import torch_pjrt

METRES = {"m": 1.0, "km": 1000.0}


class Length(torch.Tensor):
    """Lengths in a unit. Sums have the unit of the first operand."""

    value: torch.Tensor
    unit: str

    @staticmethod
    def __new__(cls, value: torch.Tensor, unit: str) -> Length:
        made = torch.Tensor._make_wrapper_subclass(cls, value.shape, dtype=value.dtype, device=value.device)
        made.value, made.unit = value, unit
        return made  # type: ignore[no-any-return]

    def __init__(self, value: torch.Tensor, unit: str) -> None: ...

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{self.value} {self.unit}"  # no tolist(): logs show tensors that have no values

    def __tensor_flatten__(self) -> tuple[list[str], str]:
        return ["value"], self.unit

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], unit: str, size: Any, stride: Any) -> Length:
        return Length(inner["value"], unit)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        unit = next(x.unit for x in pytree.tree_leaves(args) if isinstance(x, Length))

        def in_unit(x: Length) -> torch.Tensor:
            return x.value if x.unit == unit else x.value * (METRES[x.unit] / METRES[unit])

        args, kwargs = pytree.tree_map_only(Length, in_unit, (args, kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, lambda x: Length(x, unit), func(*args, **kwargs))


def way(there: Length, back: Length) -> Any:
    return there + back


def main() -> None:
    there, back = Length(torch.tensor([1.0, 2.0]), "km"), Length(torch.tensor([500.0, 250.0]), "m")
    print(torch.compile(way, backend="pjrt")(there, back))
    traces = torch_pjrt.trace(way, there, back)
    print(traces["forward_with_subclasses"])
    print(traces["forward"])


if __name__ == "__main__":
    main()
