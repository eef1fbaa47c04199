"""Attributes of composites, a kernel's parameters besides the tensors, in MLIR's syntax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch_pjrt import _C

GRADIENTS_OF = "gradients_of"  # attribute of a backward


def attribute(name: str, key: str, value: Any) -> str:
    """Returns the attribute in MLIR's syntax; raises TypeError for other types of values."""
    kinds = {type(one) for one in (value if isinstance(value, (list, tuple)) else [value])}
    if isinstance(value, (list, tuple)) and kinds == {int, float}:
        value = [float(one) for one in value]
    elif len(kinds) > 1 or not kinds <= {bool, int, float, str}:
        raise TypeError(
            f"composite '{name}': attribute '{key}' is {value!r}; attributes are numbers, strings, bools, or lists of "
            "one of them"
        )
    if isinstance(value, tuple):
        value = list(value)
    return str(_C.attribute(value))


def attributes_of(name: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {key: attribute(name, key, value) for key, value in values.items()}


def of_backward(attributes: Mapping[str, str], needed: Sequence[int], count: int) -> dict[str, str]:
    """Returns the attributes of a backward: its forward's, and the indices of the operands whose gradients it returns.
    It takes ``count`` gradients in addition. A second derivative has the attribute ``gradients_of_2``."""
    order = 1 + sum(key.startswith(GRADIENTS_OF) for key in attributes)
    given = {**attributes, f"{GRADIENTS_OF}_{order}" if order > 1 else GRADIENTS_OF: str(_C.attribute(list(needed)))}
    if "operands" in given:
        given["operands"] = _C.longer(given["operands"], [f"gradient.{i}" for i in range(count)])
    return given
