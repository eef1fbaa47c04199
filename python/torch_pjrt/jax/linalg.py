"""Linear algebra that StableHLO lacks, by JAX's own functions.

A call that is recorded for JAX is a custom call whose name and attributes identify the ATen operator (``MARK``). JAX
lowers it with the rest of its program, for the platform that it runs on: ``stablehlo.py`` reads the module, and this
file defines each operator in JAX. A matrix without the wanted factor gives NaN or infinities, as in JAX, and no error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import jax
import torch
from jax import lax, numpy as jnp
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_pjrt import _C

MARK = "torch_linalg"
ELEMENTS = {
    torch.float32: "f32", torch.float64: "f64", torch.complex64: "complex<f32>", torch.complex128: "complex<f64>",
    torch.int32: "i32",
}  # fmt: skip
aten = torch.ops.aten


def _adjoint(x: Any) -> Any:
    return jnp.swapaxes(x, -1, -2).conj()


def _nothing(x: Any) -> Any:
    return jnp.zeros((0,), x.dtype)


def _eigh(a: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    lower, off = (jnp.tril(a), jnp.tril(a, -1)) if UPLO.upper() == "L" else (jnp.triu(a), jnp.triu(a, 1))
    diagonal = jnp.eye(a.shape[-1], dtype=bool)
    whole = jnp.where(diagonal, lower.real.astype(a.dtype), lower + _adjoint(off))
    vectors, values = lax.linalg.eigh(whole, symmetrize_input=False)
    return values, vectors if compute_v else _nothing(a)


def _eig(a: Any) -> Any:
    values, vectors = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return values, vectors


def _eigvals(a: Any) -> Any:
    return lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


def _svd(a: Any, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None) -> Any:
    if not compute_uv:
        return _nothing(a), lax.linalg.svd(a, compute_uv=False), _nothing(a)
    return lax.linalg.svd(a, full_matrices=full_matrices)


def _qr(a: Any, mode: str = "reduced") -> Any:
    q, r = lax.linalg.qr(a, full_matrices=mode == "complete")
    return (_nothing(a), r) if mode == "r" else (q, r)


def _info(lu: Any) -> Any:
    """Returns the 1-based index of the first pivot that is zero, or 0."""
    is_zero = jnp.diagonal(lu, axis1=-2, axis2=-1) == 0
    if is_zero.shape[-1] == 0:
        return jnp.zeros(is_zero.shape[:-1], "int32")
    return jnp.where(is_zero.any(-1), is_zero.argmax(-1) + 1, 0).astype("int32")


def _lu_factor(a: Any, pivot: bool = True, check_errors: bool = False) -> Any:
    if not pivot:
        raise NotImplementedError("linalg.lu without pivoting: JAX has LU with partial pivoting alone (pivot=True)")
    lu, pivots, _ = lax.linalg.lu(a)
    return lu, pivots + 1, _info(lu)


def _permutation(pivots: Any, rows: int) -> Any:
    return lax.linalg.lu_pivots_to_permutation(pivots - 1, rows)


def _unpack(lu: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    rows, columns = lu.shape[-2:]
    inner = min(rows, columns)
    p = lower = upper = _nothing(lu)
    if unpack_data:
        lower = jnp.tril(lu[..., :, :inner], -1) + jnp.eye(rows, inner, dtype=lu.dtype)
        upper = jnp.triu(lu[..., :inner, :])
    if unpack_pivots:
        order = _permutation(pivots, rows)
        p = jnp.swapaxes(jax.nn.one_hot(order, rows, dtype=lu.dtype), -1, -2)
    return p, lower, upper


def _lu(a: Any, pivot: bool = True) -> Any:
    return _unpack(*_lu_factor(a, pivot)[:2])


def _spread(a: Any, b: Any) -> tuple[Any, Any]:
    """Broadcasts both to the same batch."""
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return jnp.broadcast_to(a, batch + a.shape[-2:]), jnp.broadcast_to(b, batch + b.shape[-2:])


def _lu_solve(lu: Any, pivots: Any, b: Any, left: bool = True, adjoint: bool = False) -> Any:
    if not left:  # X A = B is A* X* = B*
        return _adjoint(_lu_solve(lu, pivots, _adjoint(b), True, not adjoint))
    order = _permutation(pivots, lu.shape[-1])
    lu, b = _spread(lu, b)
    order = jnp.broadcast_to(order, b.shape[:-1])[..., None]
    solve = lax.linalg.triangular_solve
    if adjoint:
        y = solve(lu, b, left_side=True, lower=False, transpose_a=True, conjugate_a=True)
        y = solve(lu, y, left_side=True, lower=True, unit_diagonal=True, transpose_a=True, conjugate_a=True)
        return jnp.take_along_axis(y, jnp.argsort(order, -2), -2)
    y = solve(lu, jnp.take_along_axis(b, order, -2), left_side=True, lower=True, unit_diagonal=True)
    return solve(lu, y, left_side=True, lower=False)


def _solve(a: Any, b: Any, left: bool = True, check_errors: bool = False) -> Any:
    lu, pivots, info = _lu_factor(a)
    is_vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    result = _lu_solve(lu, pivots, b[..., None] if is_vector else b, left or is_vector)
    return result[..., 0] if is_vector else result, lu, pivots, info


def _inv(a: Any, check_errors: bool = False) -> Any:
    lu, pivots, info = _lu_factor(a)
    return _lu_solve(lu, pivots, jnp.eye(a.shape[-1], dtype=a.dtype)), info


def _parity(pivots: Any) -> Any:
    swaps = (pivots != jnp.arange(1, pivots.shape[-1] + 1)).sum(-1)
    return 1 - 2 * (swaps % 2)


def _det(a: Any) -> Any:
    lu, pivots, _ = _lu_factor(a)
    return jnp.diagonal(lu, axis1=-2, axis2=-1).prod(-1) * _parity(pivots).astype(a.dtype), lu, pivots


def _slogdet(a: Any) -> Any:
    lu, pivots, _ = _lu_factor(a)
    diagonal = jnp.diagonal(lu, axis1=-2, axis2=-1)
    sign = jnp.sign(diagonal).prod(-1) * _parity(pivots).astype(a.dtype)
    return sign, jnp.log(jnp.abs(diagonal)).sum(-1), lu, pivots


def _pinv(a: Any, atol: Any, rtol: Any, hermitian: bool = False) -> Any:
    if hermitian:
        values, right = _eigh(a)
        left, s, inverse = right, jnp.abs(values), 1 / values
    else:
        left, s, right = _svd(a)
        right, inverse = _adjoint(right), 1 / s
    if 0 in a.shape[-2:]:
        return jnp.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if rtol is None:
        rtol = 0.0 if atol is not None else jnp.finfo(a.dtype).eps * max(a.shape[-2:])
    least = jnp.maximum(0.0 if atol is None else atol, rtol * s.max(-1)).astype(s.dtype)
    inverse = jnp.where(s > least[..., None], inverse, 0).astype(a.dtype)
    return (right * inverse[..., None, :]) @ _adjoint(left)


OPERATORS: dict[str, Callable[..., Any]] = {
    "_linalg_det": _det,
    "_linalg_eigh": _eigh,
    "_linalg_eigvals": _eigvals,
    "_linalg_slogdet": _slogdet,
    "_linalg_solve_ex": _solve,
    "_linalg_svd": _svd,
    "linalg_eig": _eig,
    "linalg_householder_product": lax.linalg.householder_product,
    "linalg_inv_ex": _inv,
    "linalg_lu": _lu,
    "linalg_lu_factor_ex": _lu_factor,
    "linalg_lu_solve": _lu_solve,
    "linalg_matrix_exp": jax.scipy.linalg.expm,
    "linalg_pinv.atol_rtol_tensor": _pinv,
    "linalg_qr": _qr,
    "lu_unpack": _unpack,
}


def function_of(config: str) -> Callable[..., Any]:
    """Returns the function of a custom call, for its arguments or for batches of them, the innermost level first."""
    known = json.loads(config)
    fn = OPERATORS[known["operator"]]

    def single(*args: Any) -> tuple[Any, ...]:
        values = list(known["values"])
        for place, arg in zip(known["places"], args, strict=True):
            values[place] = arg
        given = fn(*values)
        return tuple(given) if isinstance(given, (tuple, list)) else (given,)

    function: Callable[..., Any] = single
    for dims in known["levels"]:
        function = jax.vmap(function, tuple(dims), 0)
    return function


def batched(config: str, dims: Sequence[int | None]) -> str:
    known = json.loads(config)
    return json.dumps({**known, "levels": [*known["levels"], list(dims)]})


def results_of(config: str, structs: Sequence[Any]) -> list[tuple[tuple[int, ...], Any]]:
    """Returns shape and dtype of each result."""
    return [(x.shape, x.dtype) for x in jax.eval_shape(function_of(config), *structs)]


def call_text(config: str, operands: Sequence[str], results: Sequence[str]) -> str:
    """Returns the text of the operation, whose operands of these types are %arg0 and so on."""
    names = ", ".join(f"%arg{i}" for i in range(len(operands)))
    count = f":{len(results)}" if len(results) > 1 else ""
    return (
        f"%r{count} = stablehlo.custom_call @{MARK}({names}) {{backend_config = {json.dumps(config)}}} : "
        f"({', '.join(operands)}) -> {results[0] if len(results) == 1 else '(' + ', '.join(results) + ')'}"
    )


# --- recording --------------------------------------------------------------------------------------------------------


def _type_of(tensor: torch.Tensor) -> str:
    return f"tensor<{''.join(f'{size}x' for size in tensor.shape)}{ELEMENTS[tensor.dtype]}>"


class LinearAlgebra(TorchDispatchMode):
    """Records these operators as custom calls for JAX."""

    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
            return func(*args, **kwargs)
        if func is aten._linalg_check_errors.default:
            return None  # programs raise no errors
        if func is aten.linalg_cholesky_ex.default:
            kwargs = {k: v for k, v in kwargs.items() if k != "check_errors"}
            return func(*args[:1], **kwargs)
        name = f"{func}".removeprefix("aten.").removesuffix(".default")
        if name == "cholesky":  # torch 2.15 no longer has it
            return aten.linalg_cholesky_ex(args[0], upper=[*args[1:], *kwargs.values(), False][0])[0]
        return _recorded(func, name, args, kwargs) if name in OPERATORS else func(*args, **kwargs)


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _recorded(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    shapes = func(*pytree.tree_map_only(torch.Tensor, _meta, args), **pytree.tree_map_only(torch.Tensor, _meta, kwargs))
    results = list(shapes) if isinstance(shapes, (tuple, list)) else [shapes]
    values: list[Any] = [
        args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        for i, argument in enumerate(func._schema.arguments)
    ]
    places = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
    tensors = [values[i].contiguous() for i in places]
    for i in places:
        values[i] = None
    config = json.dumps({"operator": name, "values": values, "places": places, "levels": []})
    operand_types, types = [_type_of(x) for x in tensors], [_type_of(x) for x in results]
    body = call_text(config, operand_types, types)
    label = f"torch_{name.strip('_').replace('.', '_')}_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    operands = ", ".join(f"%arg{i}: {kind}" for i, kind in enumerate(operand_types))
    given = ", ".join(f"%r#{i}" for i in range(len(types))) if len(types) > 1 else "%r"
    text = (
        f"func.func private @{label}({operands}) -> ({', '.join(types)}) {{\n  {body}\n"
        f"  return {given} : {', '.join(types)}\n}}\n"
    )
    operand_forms, forms = ([(x.dtype, list(x.shape)) for x in each] for each in (tensors, results))
    function = _C.ForeignFunction(f"jax::{name}", label, text, operand_forms, forms, tensors[0].device.index)
    made = function(tensors)
    return tuple(made) if isinstance(shapes, (tuple, list)) else made[0]
