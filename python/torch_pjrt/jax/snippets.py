"""Primitives that JAX batches by shape only, and whose StableHLO text is used unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax

from torch_pjrt.jax import _compat, linalg


def _snippet_text(operation: str, types: Sequence[str], region: str, results: Sequence[str]) -> str:
    names = [f"%given{i}" for i in range(len(types))]
    given = ", ".join(f"{name}: {kind}" for name, kind in zip(names, types, strict=True))
    values = ", ".join(f"%r#{i}" for i in range(len(results))) if len(results) > 1 else "%r"
    count = f":{len(results)}" if len(results) > 1 else ""
    body = f"%r{count} = {operation}({', '.join(names)}) {region} : ({', '.join(types)}) -> ({', '.join(results)})"
    return (
        f"module {{ func.func public @main({given}) -> ({', '.join(results)}) {{\n{body}\n"
        f"return {values} : {', '.join(results)}\n}} }}"
    )


literal_p = _compat.primitive("torch_literal")
sort_p = _compat.primitive("torch_sort")
linalg_p = _compat.primitive(linalg.MARK)
random_bits_p = _compat.primitive("torch_random_bits")  # lax's own draws a batch of keys with the first key only


def _lower_literal(context: Any, text: str, form: Any) -> Any:
    whole = f"module {{ func.func public @main() -> {form[2]} {{\n%r = {text}\nreturn %r : {form[2]}\n}} }}"
    return _compat.call_text(whole, "literal", (), context, ())


def _lower_sort(context: Any, *operands: Any, dimension: int, stable: bool, region: str) -> Any:
    types = [str(operand.type) for operand in operands]
    attributes = f"<{{dimension = {dimension} : i64, is_stable = {str(stable).lower()}}}> ({{{region}}})"
    text = _snippet_text('"stablehlo.sort"', types, attributes, types)
    return _compat.call_text(text, "sort", (), context, operands)


def _batch_sort(args: Any, dims: Any, *, dimension: int, stable: bool, region: str) -> Any:
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    moved = [
        jax.numpy.broadcast_to(x, (size, *x.shape)) if d is None else jax.numpy.moveaxis(x, d, 0)
        for x, d in zip(args, dims, strict=True)
    ]
    results = sort_p.bind(*moved, dimension=dimension + 1, stable=stable, region=region)
    return results, [0] * len(results)


def _lower_random_bits(context: Any, state: Any, *, algorithm: str, form: Any) -> Any:
    results = f"{state.type}, {form[2]}"
    text = (
        f"module {{ func.func public @main(%given: {state.type}) -> ({results}) {{\n"
        f"%r:2 = stablehlo.rng_bit_generator %given, algorithm = {algorithm} : ({state.type}) -> ({results})\n"
        f"return %r#0, %r#1 : {results}\n}} }}"
    )
    return _compat.call_text(text, "random_bits", (), context, (state,))


def _batch_random_bits(args: Any, dims: Any, **params: Any) -> Any:
    states = jax.numpy.moveaxis(args[0], dims[0], 0)
    results = lax.map(lambda state: tuple(random_bits_p.bind(state, **params)), states)
    return results, [0, 0]


def _lower_linalg(context: Any, *operands: Any, config: str) -> Any:
    types = [str(operand.type) for operand in operands]
    results = [_compat.type_text(aval) for aval in context.avals_out]
    given = ", ".join(f"%arg{i}: {kind}" for i, kind in enumerate(types))
    values = ", ".join(f"%r#{i}" for i in range(len(results))) if len(results) > 1 else "%r"
    text = (
        f"module {{ func.func public @main({given}) -> ({', '.join(results)}) {{\n"
        f"{linalg.call_text(config, types, results)}\nreturn {values} : {', '.join(results)}\n}} }}"
    )
    return _compat.call_text(text, "linalg", (), context, operands)


def _batch_linalg(args: Any, dims: Any, *, config: str) -> Any:
    config = linalg.batched(config, [dim if isinstance(dim, int) else None for dim in dims])
    results = linalg_p.bind(*args, config=config)
    return results, [0] * len(results)


def _no_derivative(*_: Any, **__: Any) -> Any:
    raise AssertionError("what is interpreted is never differentiated by JAX")


_compat.set_rules(
    literal_p,
    shapes=lambda text, form: [form[:2]],
    lower=_lower_literal,
    jvp=_no_derivative,
    batch=_no_derivative,
)
_compat.set_rules(
    sort_p,
    shapes=_no_derivative,
    lower=_lower_sort,
    jvp=_no_derivative,
    batch=_batch_sort,
)
_compat.set_rules(
    random_bits_p,
    shapes=lambda algorithm, form: [((2,), "uint64"), form[:2]],
    lower=_lower_random_bits,
    jvp=_no_derivative,
    batch=_batch_random_bits,
)
_compat.set_rules(linalg_p, shapes=_no_derivative, lower=_lower_linalg, jvp=_no_derivative, batch=_batch_linalg)
linalg_p.def_abstract_eval(
    lambda *avals, config: [jax.core.ShapedArray(*form) for form in linalg.results_of(config, avals)]
)
sort_p.def_abstract_eval(lambda *avals, **_: [jax.core.ShapedArray(aval.shape, aval.dtype) for aval in avals])
