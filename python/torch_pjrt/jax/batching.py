"""``vmap`` of a program in text form: JAX batches its operations one by one.

The gradient of an argument that all examples share is the sum over the examples. A product whose results are only
summed becomes one product that contracts the examples, as in a framework that differentiates the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax

from torch_pjrt.jax import _compat
from torch_pjrt.jax.stablehlo import Interpreter, Unbatchable

Function = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Level:
    """One vmap: the number of examples, their dimension in each argument (None if all examples share the argument), and
    the results that are summed over the examples. Other results have the examples in dimension 0."""

    size: int
    dims: tuple[int | None, ...]
    summed: frozenset[int] = frozenset()


def structs_at(levels: Sequence[Level], structs: Sequence[Any]) -> list[Any]:
    """Returns the arguments' shapes including the levels, of which the first is the innermost."""
    shapes = [struct.shape for struct in structs]
    for level in levels:
        shapes = [
            shape if dim is None else (*shape[:dim], level.size, *shape[dim:])
            for shape, dim in zip(shapes, level.dims, strict=True)
        ]
    return [jax.ShapeDtypeStruct(shape, struct.dtype) for shape, struct in zip(shapes, structs, strict=True)]


def batched_text(text: str, structs: Sequence[Any], levels: Sequence[Level]) -> str:
    """Returns the module for batched arguments; ``structs`` are the arguments' without levels.

    Raises:
        NotImplementedError: an operation can't be batched.
    """
    module, context = _compat.parse(text)
    with context, _compat.x64(), _compat.no_mesh():
        run = Interpreter(module)

        def function(*args: Any) -> Sequence[Any]:
            return tuple(run.function("main", args))

        batched: Function = function
        for i, level in enumerate(levels):
            batched = _batched(batched, level, structs_at(levels[: i + 1], structs))
        try:
            return _compat.lower_generic(batched, structs_at(levels, structs)).as_text()
        except Unbatchable as error:
            raise NotImplementedError(
                f"jax.vmap of a torch function that uses {error}, which can't be batched: loop over the examples with "
                "jax.lax.map"
            ) from None


def _batched(function: Function, level: Level, structs: Sequence[Any]) -> Function:
    batched: Function = jax.vmap(function, level.dims, 0, axis_size=level.size)
    if not level.summed:
        return batched

    def run(*args: Any) -> Sequence[Any]:
        jaxpr = jax.make_jaxpr(batched)(*structs)
        sums = Sums(jaxpr, args)
        return tuple(
            sums.over(variable, 0) if i in level.summed else sums.value(variable)
            for i, variable in enumerate(jaxpr.jaxpr.outvars)
        )

    return run


class Sums:
    """The values of a jaxpr, and sums of them along one dimension, computed as early as possible."""

    def __init__(self, jaxpr: Any, args: Sequence[Any]) -> None:
        self.values, self.made_by = _compat.evaluate(jaxpr, args)

    def value(self, variable: Any) -> Any:
        return _compat.read(self.values, variable)

    def over(self, variable: Any, dim: int) -> Any:
        made_by = None if _compat.is_literal(variable) else self.made_by.get(variable)
        rule = EARLIER.get(made_by.primitive.name) if made_by is not None else None
        found = rule(self, made_by, dim) if rule else None
        if found is not None:
            return found
        value = self.value(variable)
        return lax.reduce(value, value.dtype.type(0), lax.add, (dim,))


def _both(sums: Sums, made_by: Any, dim: int) -> Any:
    apply = lax.sub if made_by.primitive.name == "sub" else lax.add
    return apply(*(sums.over(variable, dim) for variable in made_by.invars))


def _neg(sums: Sums, made_by: Any, dim: int) -> Any:
    return lax.neg(sums.over(made_by.invars[0], dim))


def _transpose(sums: Sums, made_by: Any, dim: int) -> Any:
    permutation = made_by.params["permutation"]
    inner = permutation[dim]
    rest = [each - (each > inner) for i, each in enumerate(permutation) if i != dim]
    return lax.transpose(sums.over(made_by.invars[0], inner), rest)


def _reshape(sums: Sums, made_by: Any, dim: int) -> Any:
    before, after = made_by.invars[0].aval.shape, made_by.outvars[0].aval.shape
    if before[: dim + 1] != after[: dim + 1]:
        return None
    return lax.reshape(sums.over(made_by.invars[0], dim), after[:dim] + after[dim + 1 :])


def _reduce_sum(sums: Sums, made_by: Any, dim: int) -> Any:
    axes = made_by.params["axes"]
    inner = [d for d in range(made_by.invars[0].aval.ndim) if d not in axes][dim]
    rest = tuple(axis - (axis > inner) for axis in axes)
    value = sums.over(made_by.invars[0], inner)
    return lax.reduce(value, value.dtype.type(0), lax.add, rest)


def _dot_general(sums: Sums, made_by: Any, dim: int) -> Any:
    (left, right), (left_batch, right_batch) = made_by.params["dimension_numbers"]
    if dim >= len(left_batch):
        return None
    numbers = (
        ((*left, left_batch[dim]), (*right, right_batch[dim])),
        (left_batch[:dim] + left_batch[dim + 1 :], right_batch[:dim] + right_batch[dim + 1 :]),
    )
    precision, result = made_by.params["precision"], made_by.params["preferred_element_type"]
    return lax.dot_general(*(sums.value(x) for x in made_by.invars), numbers, precision, result)


EARLIER: dict[str, Callable[[Sums, Any, int], Any]] = {
    "add": _both,
    "sub": _both,
    "neg": _neg,
    "transpose": _transpose,
    "reshape": _reshape,
    "reduce_sum": _reduce_sum,
    "dot_general": _dot_general,
}
