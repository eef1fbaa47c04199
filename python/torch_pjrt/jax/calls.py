"""The two JAX primitives of torch programs: a call, and the linear part of its derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from torch_pjrt.jax import _compat
from torch_pjrt.jax.linalg import MARK
from torch_pjrt.jax.program import Program
from torch_pjrt.jax.stablehlo import as_function

call_p = _compat.primitive("torch")
linear_p = _compat.primitive("torch_linear")  # linear in the tangents, its last operands


def call(program: Program, args: Sequence[Any]) -> list[Any]:
    return list(call_p.bind(*_compat.alike(args), program=program))


def _linear(program: Program, args: Sequence[Any]) -> list[Any]:
    return list(linear_p.bind(*_compat.alike(args), program=program))


def _shapes(program: Program) -> list[tuple[tuple[int, ...], Any]]:
    return program.results()


def _lower(context: Any, *operands: Any, program: Program) -> Any:
    text, constants = program.text(), program.recorded.constants
    if f"@{MARK}(" in text:  # calls of linear algebra, which JAX lowers for its platform
        with _compat.x64(), _compat.no_mesh():
            return _compat.call_function(as_function(text, constants), context, operands)
    return _compat.call_text(text, program.recorded.name, constants, context, operands)


def _moving(tangents: Sequence[Any]) -> tuple[int, ...]:
    return tuple(i for i, tangent in enumerate(tangents) if not _compat.is_zero(tangent))


def _call_jvp(primals: Any, tangents: Any, *, program: Program) -> Any:
    results = call(program, primals)
    wanted = _moving(tangents)
    zeros: list[Any] = [_compat.zero_like(result) for result in results]
    if wanted and program.recorded.moving:
        given = _linear(program.jvp(wanted), [*primals, *(tangents[i] for i in wanted)])
        for i, tangent in zip(program.recorded.moving, given, strict=True):
            zeros[i] = tangent
    return results, zeros


def _linear_jvp(primals: Any, tangents: Any, *, program: Program) -> Any:
    results = _linear(program, primals)
    wanted = _moving(tangents)
    if not wanted:
        return results, [_compat.zero_like(result) for result in results]
    assert program.recorded.of is not None
    first = len(program.recorded.of[0].structs)
    if all(i >= first for i in wanted):
        filled = [tangents[i] if i in wanted else jax.numpy.zeros_like(primals[i]) for i in range(first, len(primals))]
        return results, _linear(program, [*primals[:first], *filled])
    return results, _linear(program.jvp(wanted), [*primals, *(tangents[i] for i in wanted)])


def _linear_transpose(cotangents: Any, *args: Any, program: Program) -> Any:
    assert program.recorded.of is not None
    first = len(program.recorded.of[0].structs)
    wanted = tuple(i for i, arg in enumerate(args[first:]) if _compat.is_linear_unknown(arg))
    transposed = program.transposed(wanted)
    given = [_compat.materialized(cotangent) for cotangent in cotangents]
    gradients = call(transposed, [*args[:first], *given])
    results: list[Any] = [None] * len(args)
    for i, gradient in zip(wanted, gradients, strict=True):
        results[first + i] = _as_given(gradient, [level.dims[first + i] for level in program.levels])
    return results


def _as_given(gradient: Any, dims: Sequence[int | None]) -> Any:
    """Moves the examples from the front, where transposed programs have them with the outermost level first, to their
    original dimensions."""
    inner = [dim for dim in dims if dim is not None]
    for depth, dim in enumerate(inner):  # from the innermost level out
        front = len(inner) - 1 - depth
        gradient = jax.numpy.moveaxis(gradient, front, front + dim)
    return gradient


def _batch(primitive: Any) -> Any:
    def rule(args: Any, dims: Any, *, program: Program) -> Any:
        given = tuple(dim if isinstance(dim, int) else None for dim in dims)
        size = next(arg.shape[dim] for arg, dim in zip(args, given, strict=True) if dim is not None)
        results = list(primitive.bind(*_compat.alike(args), program=program.batched(size, given)))
        return results, [0] * len(results)

    return rule


_compat.set_rules(call_p, shapes=_shapes, lower=_lower, jvp=_call_jvp, batch=_batch(call_p))
_compat.set_rules(
    linear_p, shapes=_shapes, lower=_lower, jvp=_linear_jvp, batch=_batch(linear_p), transpose=_linear_transpose
)
