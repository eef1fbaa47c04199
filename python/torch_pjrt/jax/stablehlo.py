"""A StableHLO module as a JAX function of lax operations, for ``vmap`` of a program in text form.

Each operation has one entry here with its lax counterpart. An operation without an entry can't be batched, and the
error names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from torch_pjrt.jax import _compat, linalg
from torch_pjrt.jax.snippets import linalg_p, literal_p, random_bits_p, sort_p

Values = list[Any]
Handler = Callable[["Interpreter", Any, Values], Any]

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "stablehlo.abs": lax.abs, "stablehlo.add": lax.add, "stablehlo.and": lax.bitwise_and, "stablehlo.atan2": lax.atan2,
    "stablehlo.cbrt": lax.cbrt, "stablehlo.ceil": lax.ceil, "stablehlo.clamp": lax.clamp,
    "stablehlo.complex": lax.complex, "stablehlo.cosine": lax.cos, "stablehlo.count_leading_zeros": lax.clz,
    "stablehlo.divide": lax.div, "stablehlo.exponential": lax.exp, "stablehlo.exponential_minus_one": lax.expm1,
    "stablehlo.floor": lax.floor, "stablehlo.imag": lax.imag, "stablehlo.is_finite": lax.is_finite,
    "stablehlo.log": lax.log, "stablehlo.log_plus_one": lax.log1p, "stablehlo.logistic": lax.logistic,
    "stablehlo.maximum": lax.max, "stablehlo.minimum": lax.min, "stablehlo.multiply": lax.mul,
    "stablehlo.negate": lax.neg, "stablehlo.not": lax.bitwise_not, "stablehlo.or": lax.bitwise_or,
    "stablehlo.popcnt": lax.population_count, "stablehlo.power": lax.pow, "stablehlo.real": lax.real,
    "stablehlo.remainder": lax.rem, "stablehlo.rsqrt": lax.rsqrt, "stablehlo.select": lax.select,
    "stablehlo.shift_left": lax.shift_left, "stablehlo.shift_right_arithmetic": lax.shift_right_arithmetic,
    "stablehlo.shift_right_logical": lax.shift_right_logical, "stablehlo.sign": lax.sign, "stablehlo.sine": lax.sin,
    "stablehlo.sqrt": lax.sqrt, "stablehlo.subtract": lax.sub, "stablehlo.tan": lax.tan, "stablehlo.tanh": lax.tanh,
    "stablehlo.xor": lax.bitwise_xor, "chlo.acos": lax.acos, "chlo.acosh": lax.acosh, "chlo.asin": lax.asin,
    "chlo.asinh": lax.asinh, "chlo.atan": lax.atan, "chlo.atanh": lax.atanh, "chlo.cosh": lax.cosh,
    "chlo.digamma": lax.digamma, "chlo.erf": lax.erf, "chlo.erf_inv": lax.erf_inv, "chlo.erfc": lax.erfc,
    "chlo.lgamma": lax.lgamma, "chlo.next_after": lax.nextafter, "chlo.polygamma": lax.polygamma,
    "chlo.sinh": lax.sinh, "chlo.square": lax.square, "chlo.tan": lax.tan, "chlo.zeta": lax.zeta,
}  # fmt: skip
COMPARISONS = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}
SCATTERS: dict[str, Callable[..., Any]] = {
    "stablehlo.add": lax.scatter_add, "stablehlo.multiply": lax.scatter_mul, "stablehlo.minimum": lax.scatter_min,
    "stablehlo.maximum": lax.scatter_max, "stablehlo.subtract": lax.scatter_sub,
}  # fmt: skip


# Counterparts for bools.
OF_BOOLS: dict[str, Callable[..., Any]] = {
    "stablehlo.add": lax.bitwise_or, "stablehlo.maximum": lax.bitwise_or, "stablehlo.minimum": lax.bitwise_and,
    "stablehlo.multiply": lax.bitwise_and,
}  # fmt: skip


class Unbatchable(NotImplementedError):
    """Raised for an operation without a lax counterpart."""


def _ints(op: Any, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
    return tuple(int(i) for i in op.attributes[name]) if name in op.attributes else tuple(default)


def _number(op: Any, name: str, default: int = 0) -> int:
    return int(op.attributes[name].value) if name in op.attributes else default


def _flag(op: Any, name: str) -> bool:
    return bool(op.attributes[name].value) if name in op.attributes else False


def _word(op: Any, name: str, kind: str) -> str:
    return str(getattr(_compat.dialects, kind)(op.attributes[name]).value)


def _pairs(op: Any, name: str, rank: int) -> list[tuple[int, int]]:
    if name not in op.attributes:
        return [(0, 0)] * rank
    return [(int(low), int(high)) for low, high in np.array(op.attributes[name]).reshape(rank, 2)]


def _precision(op: Any) -> Any:
    if "precision_config" not in op.attributes:
        return None
    words = [_compat.dialects.PrecisionAttr(each).value for each in op.attributes["precision_config"]]
    return tuple(lax.Precision[word] for word in words)


def _result(op: Any, index: int = 0) -> jax.ShapeDtypeStruct:
    return _compat.struct_of(op.results[index].type)


# --- the operations ---------------------------------------------------------------------------------------------------


def _constant(_: Interpreter, op: Any, __: Values) -> Any:
    kind = str(op.results[0].type)
    struct = _result(op)
    text = op.get_asm(use_local_scope=True, enable_debug_info=False).strip().partition(" = ")[2]
    return literal_p.bind(text=text, form=(struct.shape, struct.dtype, kind))[0]


def _compare(_: Interpreter, op: Any, x: Values) -> Any:
    return COMPARISONS[_word(op, "comparison_direction", "ComparisonDirectionAttr")](*x)


def _broadcast_in_dim(_: Interpreter, op: Any, x: Values) -> Any:
    return lax.broadcast_in_dim(x[0], _result(op).shape, _ints(op, "broadcast_dimensions"))


def _slice(_: Interpreter, op: Any, x: Values) -> Any:
    return lax.slice(x[0], _ints(op, "start_indices"), _ints(op, "limit_indices"), _ints(op, "strides"))


def _padding(_: Interpreter, op: Any, x: Values) -> Any:
    edges = (_ints(op, name) for name in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    return lax.pad(x[0], x[1], list(zip(*edges, strict=True)))


def _dynamic_slice(_: Interpreter, op: Any, x: Values) -> Any:
    return lax.dynamic_slice(x[0], x[1:], _ints(op, "slice_sizes"))


def _gather(_: Interpreter, op: Any, x: Values) -> Any:
    n = _compat.dialects.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(n.offset_dims),
        collapsed_slice_dims=tuple(n.collapsed_slice_dims),
        start_index_map=tuple(n.start_index_map),
        operand_batching_dims=tuple(n.operand_batching_dims),
        start_indices_batching_dims=tuple(n.start_indices_batching_dims),
    )
    indices = _vectors_last(x[1], n.index_vector_dim)
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS  # lowered unchanged: StableHLO itself clamps
    return lax.gather(x[0], indices, numbers, _ints(op, "slice_sizes"), mode=mode)


def _vectors_last(indices: Any, dim: int) -> Any:
    return lax.expand_dims(indices, [dim]) if dim == indices.ndim else jax.numpy.moveaxis(indices, dim, -1)


def _scatter(_: Interpreter, op: Any, x: Values) -> Any:
    block = op.regions[0].blocks[0]
    body = [each.operation for each in block.operations]
    if len(x) != 3:
        raise Unbatchable("a scatter into several tensors")
    if len(body) == 1 and body[0].operands[0] == block.arguments[1]:
        apply = lax.scatter
    elif len(body) == 2 and body[0].name in SCATTERS and {*body[0].operands} == {*block.arguments}:
        apply = SCATTERS[body[0].name]
    else:
        raise Unbatchable("a scatter that computes more than one operation of its elements")
    n = _compat.dialects.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(n.update_window_dims),
        inserted_window_dims=tuple(n.inserted_window_dims),
        scatter_dims_to_operand_dims=tuple(n.scattered_dims_to_operand_dims),
        operand_batching_dims=tuple(n.input_batching_dims),
        scatter_indices_batching_dims=tuple(n.scatter_indices_batching_dims),
    )
    indices = _vectors_last(x[1], n.index_vector_dim)
    return apply(x[0], indices, x[2], numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)


def _reduce(run: Interpreter, op: Any, x: Values) -> Any:
    half = len(x) // 2
    body = run.region(op.regions[0])
    return lax.reduce(tuple(x[:half]), tuple(x[half:]), lambda a, b: tuple(body([*a, *b])), _ints(op, "dimensions"))


def _reduce_window(run: Interpreter, op: Any, x: Values) -> Any:
    half, rank = len(x) // 2, x[0].ndim
    ones, body = (1,) * rank, run.region(op.regions[0])
    window = (_ints(op, name, ones) for name in ("window_dimensions", "window_strides"))
    dilations = (_ints(op, name, ones) for name in ("base_dilations", "window_dilations"))
    return lax.reduce_window(
        tuple(x[:half]),
        tuple(x[half:]),
        lambda a, b: tuple(body([*a, *b])),
        *window,
        _pairs(op, "padding", rank),
        *dilations,
    )


def _sorted(_: Interpreter, op: Any, x: Values) -> Any:
    text = op.get_asm(print_generic_op_form=True, use_local_scope=True, enable_debug_info=False)
    region = text[text.index("({") + 2 : text.rindex("})")]
    return sort_p.bind(*x, dimension=_number(op, "dimension", -1), stable=_flag(op, "is_stable"), region=region)


def _dot_general(_: Interpreter, op: Any, x: Values) -> Any:
    n = _compat.dialects.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    contracting = tuple(n.lhs_contracting_dimensions), tuple(n.rhs_contracting_dimensions)
    batch = tuple(n.lhs_batching_dimensions), tuple(n.rhs_batching_dimensions)
    return lax.dot_general(*x, (contracting, batch), _precision(op), _result(op).dtype)


def _convolution(_: Interpreter, op: Any, x: Values) -> Any:
    n = _compat.dialects.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    spatial = tuple(n.kernel_spatial_dimensions)
    rank = len(spatial)
    reversal = [bool(each) for each in op.attributes["window_reversal"]] if "window_reversal" in op.attributes else []
    kernel = (
        lax.rev(x[1], [dim for dim, transposed in zip(spatial, reversal, strict=True) if transposed])
        if reversal
        else x[1]
    )
    numbers = lax.ConvDimensionNumbers(
        (n.input_batch_dimension, n.input_feature_dimension, *n.input_spatial_dimensions),
        (n.kernel_output_feature_dimension, n.kernel_input_feature_dimension, *spatial),
        (n.output_batch_dimension, n.output_feature_dimension, *n.output_spatial_dimensions),
    )
    return lax.conv_general_dilated(
        x[0],
        kernel,
        _ints(op, "window_strides", (1,) * rank),
        _pairs(op, "padding", rank),
        _ints(op, "lhs_dilation", (1,) * rank),
        _ints(op, "rhs_dilation", (1,) * rank),
        numbers,
        _number(op, "feature_group_count", 1),
        _number(op, "batch_group_count", 1),
        _precision(op),
        _result(op).dtype,
    )


def _cholesky(_: Interpreter, op: Any, x: Values) -> Any:
    if _flag(op, "lower"):
        return lax.linalg.cholesky(x[0], symmetrize_input=False)
    transposed = jax.numpy.swapaxes(x[0], -1, -2).conj()
    return jax.numpy.swapaxes(lax.linalg.cholesky(transposed, symmetrize_input=False), -1, -2).conj()


def _triangular_solve(_: Interpreter, op: Any, x: Values) -> Any:
    transposed = _word(op, "transpose_a", "TransposeAttr")
    return lax.linalg.triangular_solve(
        *x,
        left_side=_flag(op, "left_side"),
        lower=_flag(op, "lower"),
        transpose_a=transposed != "NO_TRANSPOSE",
        conjugate_a=transposed == "ADJOINT",
        unit_diagonal=_flag(op, "unit_diagonal"),
    )


def _while(run: Interpreter, op: Any, x: Values) -> Any:
    condition, body = (run.region(region) for region in op.regions)
    return lax.while_loop(lambda state: condition(list(state))[0], lambda state: tuple(body(list(state))), tuple(x))


def _if(run: Interpreter, op: Any, x: Values) -> Any:
    yes, no = (run.region(region) for region in op.regions)
    return lax.cond(x[0], lambda: tuple(yes([])), lambda: tuple(no([])))


def _case(run: Interpreter, op: Any, x: Values) -> Any:
    branches = [run.region(region) for region in op.regions]
    last = len(branches) - 1  # an index out of range selects the last branch
    index = lax.select((x[0] < 0) | (x[0] > last), lax.full_like(x[0], last), x[0])
    return lax.switch(index, [lambda body=body: tuple(body([])) for body in branches])


def _rng_bit_generator(_: Interpreter, op: Any, x: Values) -> Any:
    result, kind = _result(op, 1), str(op.results[1].type)
    algorithm = _word(op, "rng_algorithm", "RngAlgorithmAttr")
    if algorithm != "THREE_FRY":
        raise Unbatchable(f"random numbers by {algorithm}")
    return random_bits_p.bind(x[0], algorithm=algorithm, form=(result.shape, result.dtype, kind))


def _reduce_precision(_: Interpreter, op: Any, x: Values) -> Any:
    return lax.reduce_precision(x[0], _number(op, "exponent_bits"), _number(op, "mantissa_bits"))


def _call(run: Interpreter, op: Any, x: Values) -> Any:
    return run.function(op.attributes["callee"].value, x)


def _composite(run: Interpreter, op: Any, x: Values) -> Any:
    return run.function(op.attributes["decomposition"].value, x)


def _custom_call(run: Interpreter, op: Any, x: Values) -> Any:
    target = op.attributes["call_target_name"].value
    if target != linalg.MARK:
        raise Unbatchable(f"stablehlo.custom_call @{target}")
    config = op.attributes["backend_config"].value
    return linalg.function_of(config)(*x) if run.is_final else linalg_p.bind(*x, config=config)


def _round(method: Any) -> Handler:
    return lambda run, op, x: lax.round(x[0], method)


HANDLERS: dict[str, Handler] = {
    "stablehlo.bitcast_convert": lambda run, op, x: lax.bitcast_convert_type(x[0], _result(op).dtype),
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.case": _case,
    "stablehlo.cholesky": _cholesky,
    "stablehlo.compare": _compare,
    "stablehlo.composite": _composite,
    "stablehlo.concatenate": lambda run, op, x: lax.concatenate(x, _number(op, "dimension")),
    "stablehlo.constant": _constant,
    "stablehlo.convert": lambda run, op, x: lax.convert_element_type(x[0], _result(op).dtype),
    "stablehlo.convolution": _convolution,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": lambda run, op, x: lax.dynamic_update_slice(x[0], x[1], x[2:]),
    "stablehlo.fft": lambda run, op, x: lax.fft(x[0], _word(op, "fft_type", "FftTypeAttr"), _ints(op, "fft_length")),
    "stablehlo.gather": _gather,
    "stablehlo.if": _if,
    "stablehlo.iota": lambda run, op, x: lax.broadcasted_iota(
        _result(op).dtype, _result(op).shape, _number(op, "iota_dimension")
    ),
    "stablehlo.optimization_barrier": lambda run, op, x: lax.optimization_barrier(tuple(x)),
    "stablehlo.pad": _padding,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.reshape": lambda run, op, x: lax.reshape(x[0], _result(op).shape),
    "stablehlo.reverse": lambda run, op, x: lax.rev(x[0], _ints(op, "dimensions")),
    "stablehlo.rng_bit_generator": _rng_bit_generator,
    "stablehlo.round_nearest_afz": _round(lax.RoundingMethod.AWAY_FROM_ZERO),
    "stablehlo.round_nearest_even": _round(lax.RoundingMethod.TO_NEAREST_EVEN),
    "stablehlo.scatter": _scatter,
    "stablehlo.slice": _slice,
    "stablehlo.sort": _sorted,
    "stablehlo.transpose": lambda run, op, x: lax.transpose(x[0], _ints(op, "permutation")),
    "stablehlo.triangular_solve": _triangular_solve,
    "stablehlo.while": _while,
    "chlo.is_inf": lambda run, op, x: lax.eq(lax.abs(x[0]), lax.full_like(x[0], np.inf)),
    "chlo.is_neg_inf": lambda run, op, x: lax.eq(x[0], lax.full_like(x[0], -np.inf)),
    "chlo.is_pos_inf": lambda run, op, x: lax.eq(x[0], lax.full_like(x[0], np.inf)),
    "chlo.top_k": lambda run, op, x: lax.top_k(x[0], _number(op, "k")),
    "func.call": _call,
}


class Interpreter:
    """Runs a parsed module, within its context and under ``_compat.x64`` (the text states its types).

    With ``is_final``, custom calls for JAX become JAX's operations instead of text."""

    def __init__(self, module: Any, is_final: bool = False) -> None:
        self.is_final = is_final
        self.functions = {op.attributes["sym_name"].value: op.operation for op in module.body.operations}
        self.values: dict[Any, Any] = {}

    def function(self, name: str, args: Sequence[Any]) -> Values:
        outer, self.values = self.values, {}
        try:
            return self.block(self.functions[name].regions[0].blocks[0], args)
        finally:
            self.values = outer

    def region(self, region: Any) -> Callable[[Sequence[Any]], Values]:
        values = dict(self.values)  # values of the enclosing regions

        def run(args: Sequence[Any]) -> Values:
            outer, self.values = self.values, dict(values)
            try:
                return self.block(region.blocks[0], args)
            finally:
                self.values = outer

        return run

    def block(self, block: Any, args: Sequence[Any]) -> Values:
        for argument, value in zip(block.arguments, args, strict=True):
            self.values[argument] = value
        for each in block.operations:
            op = each.operation
            operands = [self.values[operand] for operand in op.operands]
            if op.name in ("func.return", "stablehlo.return"):
                return operands
            given = self.operation(op, operands)
            results = list(given) if isinstance(given, (tuple, list)) else [given]
            for result, value in zip(op.results, results, strict=True):
                self.values[result] = value
        raise AssertionError("a block without an end")

    def operation(self, op: Any, operands: Values) -> Any:
        if op.name in OF_BOOLS and operands[0].dtype == bool:
            return OF_BOOLS[op.name](*operands)
        if op.name in ELEMENTWISE:
            return ELEMENTWISE[op.name](*operands)
        if op.name not in HANDLERS:
            raise Unbatchable(op.name)
        return HANDLERS[op.name](self, op, operands)


def as_function(text: str, constants: Sequence[Any]) -> Callable[..., Values]:
    """Returns a module as a JAX function, whose last arguments are the constants."""
    module, context = _compat.parse(text)

    def function(*args: Any) -> Values:
        with context:
            return Interpreter(module, is_final=True).function("main", [*args, *map(jax.numpy.asarray, constants)])

    return function
