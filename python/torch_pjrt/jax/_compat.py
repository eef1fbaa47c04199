"""The parts of JAX that are renamed or moved from release to release. The other files of this folder use only ``jax``,
``jax.numpy`` and ``jax.lax`` besides (``tools/check_layers.py`` enforces it)."""

from __future__ import annotations

import functools
import importlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

OLDEST, NEWEST = (0, 7), (0, 12)  # the range of supported releases

try:
    import jax
except ImportError as error:
    raise ImportError(
        "torch_pjrt.jax needs JAX, which is not installed: pip install 'torch_pjrt[jax]' (or pip install jax)"
    ) from error


def _check_version(version: str) -> None:
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    low, high = (".".join(map(str, each)) for each in (OLDEST, NEWEST))
    if found < OLDEST:
        raise ImportError(f"torch_pjrt.jax needs JAX {low} or later, and {version} is installed: pip install -U jax")
    if found > NEWEST:
        raise ImportError(
            f"torch_pjrt.jax was made for JAX {low} to {high}, and {version} is installed: pip install -U "
            f"torch_pjrt, or pip install 'jax<={high}.*'"
        )


_check_version(jax.__version__)

import jax.extend.core  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from jax.extend.core import Primitive  # noqa: E402
from jax.extend.mlir import ir  # noqa: E402
from jax.extend.mlir.dialects import func, stablehlo  # noqa: E402
from jax.interpreters import ad, batching, mlir  # noqa: E402

FLOAT0 = jax.dtypes.float0
GENERIC = "pjrt"  # a platform that JAX doesn't know: it uses lowerings that need no library of a platform
dialects = stablehlo


def is_tracer(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer)


@functools.cache
def _is_clean() -> Callable[[], bool]:
    try:
        from jax._src.core import trace_state_clean
    except ImportError:
        return cast("Callable[[], bool]", jax.core.trace_state_clean)
    return cast("Callable[[], bool]", trace_state_clean)


def is_tracing() -> bool:
    """Whether JAX traces in this thread."""
    return not _is_clean()()


def trace_state() -> Any:
    """Returns an object that identifies JAX's current trace in this thread; it is equal within one trace."""
    import jax.extend.core as core

    found = getattr(core, "get_opaque_trace_state", None) or jax.core.get_opaque_trace_state
    return found(convention="flax")


def is_typed_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key))


def has_x64() -> bool:
    return bool(jax.config.jax_enable_x64)


def x64() -> Any:
    """Returns a context in which JAX has 64-bit types."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64(True)


@contextmanager
def no_mesh() -> Iterator[None]:
    """Hides the current mesh from lowering in the block."""
    sharding = jax.sharding
    if not hasattr(sharding, "use_abstract_mesh"):
        yield
        return
    with sharding.use_abstract_mesh(sharding.AbstractMesh((), ())):
        yield


# --- primitives -------------------------------------------------------------------------------------------------------


def primitive(name: str) -> Primitive:
    made = Primitive(name)
    made.multiple_results = True

    @functools.cache
    def jitted(items: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
        return jax.jit(lambda *args: made.bind(*args, **dict(items)))

    made.def_impl(lambda *args, **params: jitted(tuple(params.items()))(*args))
    return made


def set_rules(
    of: Primitive,
    *,
    shapes: Callable[..., list[tuple[tuple[int, ...], Any]]],
    lower: Callable[..., Any],
    jvp: Callable[..., Any],
    batch: Callable[..., Any],
    transpose: Callable[..., Any] | None = None,
) -> None:
    """Defines a primitive; ``shapes(**params)`` has (shape, dtype) of each result."""
    of.def_abstract_eval(lambda *avals, **params: _results_like(avals, shapes(**params)))

    mlir.register_lowering(of, lower)
    ad.primitive_jvps[of] = jvp
    batching.primitive_batchers[of] = batch
    if transpose is not None:
        ad.primitive_transposes[of] = transpose


def _varying(aval: Any) -> frozenset[Any]:
    """Returns the axes of a shard_map's mesh along which a value differs."""
    kind = getattr(aval, "manual_axis_type", None)
    if kind is not None:
        return frozenset(kind.varying)
    return frozenset(getattr(aval, "vma", ()))


def _results_like(avals: Sequence[Any], forms: list[tuple[tuple[int, ...], Any]]) -> list[Any]:
    axes = [_varying(aval) for aval in avals]
    every = frozenset().union(*axes)
    if not every:
        return [jax.core.ShapedArray(shape, np.dtype(dtype)) for shape, dtype in forms]
    like = next(aval for aval, own in zip(avals, axes, strict=True) if own == every)

    def update(shape: tuple[int, ...], dtype: Any) -> Any:
        sharding = like.sharding.update(spec=jax.sharding.PartitionSpec(*[None] * len(shape)))
        return like.update(shape=shape, dtype=np.dtype(dtype), weak_type=False, sharding=sharding)

    return [update(shape, dtype) for shape, dtype in forms]


def alike(values: Sequence[Any]) -> list[Any]:
    """Makes the operands of one call vary along the same axes of a shard_map's mesh, as it requires."""
    axes = [_varying(jax.typeof(value)) for value in values]
    every = frozenset().union(*axes)
    cast = getattr(jax.lax, "pcast", None)

    def widened(value: Any, own: frozenset[Any]) -> Any:
        missing = tuple(every - own)
        if not missing:
            return value
        return cast(value, missing, to="varying") if cast else jax.lax.pvary(value, missing)

    return [widened(value, own) for value, own in zip(values, axes, strict=True)]


def zero_like(value: Any) -> Any:
    """Returns a zero tangent of the value."""
    aval = jax.typeof(value)
    return ad.Zero(aval.to_tangent_aval() if hasattr(aval, "to_tangent_aval") else aval.at_least_vspace())


def is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero or tangent.dtype == FLOAT0


is_linear_unknown = ad.is_undefined_primal
materialized = ad.instantiate_zeros


# --- modules ----------------------------------------------------------------------------------------------------------


def call_text(text: str, name: str, constants: Sequence[Any], context: Any, operands: Sequence[Any]) -> Any:
    """Merges a StableHLO module into the one that is being lowered, and calls its @main."""
    whole = context.module_context
    parsed = ir.Module.parse(text, whole.module.context)
    (main,) = (op for op in parsed.body.operations if op.attributes["sym_name"].value == "main")
    results = list(main.type.results)
    called = mlir.merge_mlir_modules(whole.module, name, parsed, dst_symtab=whole.symbol_table)
    own = [constant(value) for value in constants]
    return func.CallOp(results, ir.FlatSymbolRefAttr.get(called), [*operands, *own]).results


def call_function(function: Callable[..., Any], context: Any, operands: Sequence[Any]) -> Any:
    """Lowers a JAX function at the current position."""
    return mlir.lower_fun(function, multiple_results=True)(context, *operands)


def constant(value: np.ndarray[Any, Any]) -> Any:
    """Returns a constant of the array's own dtype, with 64-bit types unchanged."""
    shape, dtype = value.shape, value.dtype
    element = mlir.dtype_to_ir_type(dtype)
    contiguous = np.ascontiguousarray(value).reshape(shape)
    if dtype == np.bool_:  # MLIR's layout of bits depends on its version
        whole = constant(contiguous.view(np.uint8))
        return stablehlo.ConvertOp(ir.RankedTensorType.get(shape, element), whole).result
    raw = contiguous
    if dtype.kind == "V":
        raw = contiguous.view(np.uint8 if dtype.itemsize == 1 else f"u{dtype.itemsize}")
    attribute = ir.DenseElementsAttr.get(raw, type=element, shape=shape)
    return stablehlo.ConstantOp(attribute).result


ELEMENTS = {
    "i1": "bool", "i2": "int2", "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "ui2": "uint2", "ui4": "uint4", "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
    "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16", "complex<f32>": "complex64",
    "complex<f64>": "complex128", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
    "f8E4M3FNUZ": "float8_e4m3fnuz", "f8E5M2FNUZ": "float8_e5m2fnuz", "f8E8M0FNU": "float8_e8m0fnu",
}  # fmt: skip


def struct_of(kind: Any) -> jax.ShapeDtypeStruct:
    """Returns shape and dtype of an MLIR tensor type."""
    ranked = ir.RankedTensorType(kind)
    return jax.ShapeDtypeStruct(tuple(ranked.shape), jax.numpy.dtype(ELEMENTS[str(ranked.element_type)]))


def type_text(aval: Any) -> str:
    """Returns the MLIR tensor type of an aval."""
    element = next(name for name, dtype in ELEMENTS.items() if dtype == str(aval.dtype))
    return f"tensor<{''.join(f'{size}x' for size in aval.shape)}{element}>"


def parse(text: str) -> tuple[Any, Any]:
    """Returns a module, and the context that owns it."""
    context = mlir.make_ir_context()
    with context:
        return ir.Module.parse(text), context


def portable_artifact(text: str) -> bytes:
    """Returns a module as bytecode of a version that compilers of the last twelve weeks, and later ones, read. CHLO has
    no versions and is lowered: erf and top_k to composites, other ops to StableHLO.

    Raises:
        ValueError: the module has parts without a portable form.
    """
    version = stablehlo.get_version_from_compatibility_requirement(stablehlo.StablehloCompatibilityRequirement.WEEK_12)
    try:
        module, context = parse(text)
        with context:
            given = io.BytesIO()
            module.operation.write_bytecode(given)
            return _serializer()(given.getvalue(), version)
    except (RuntimeError, ValueError, ir.MLIRError) as error:
        raise ValueError(f"no portable form of the program, in which form='text' saves it: {error}") from error


@functools.cache
def _serializer() -> Callable[[bytes, str], bytes]:
    own: Any = importlib.import_module("jax.extend.mlir")
    if not hasattr(own, "serialize_portable_artifact"):
        own = importlib.import_module("jaxlib._jax").mlir
    return cast("Callable[[bytes, str], bytes]", own.serialize_portable_artifact)


def as_export(name: str, text: str, platform: str) -> Any:
    """Returns a module as a ``jax.export.Exported`` with the arguments and results of its ``main``, all of them arrays.
    Results that alias arguments are separate results."""
    from jax import export, tree_util

    text = re.sub(r" *\{tf\.aliasing_output = \d+ : i32\}", "", text)
    module, context = parse(text)
    with context:
        (main,) = (op for op in module.body.operations if isinstance(op, func.FuncOp) and op.sym_name.value == "main")
        kind = ir.FunctionType(main.function_type.value)
        takes, gives = ([struct_of(each) for each in types] for types in (kind.inputs, kind.results))
    return export.Exported(
        fun_name=name,
        in_tree=tree_util.tree_structure((tuple(takes), {})),
        in_avals=tuple(jax.core.ShapedArray(each.shape, each.dtype) for each in takes),
        out_tree=tree_util.tree_structure(tuple(gives)),
        out_avals=tuple(jax.core.ShapedArray(each.shape, each.dtype) for each in gives),
        _has_named_shardings=True,
        _in_named_shardings=(None,) * len(takes),
        _out_named_shardings=(None,) * len(gives),
        in_shardings_hlo=(None,) * len(takes),
        out_shardings_hlo=(None,) * len(gives),
        nr_devices=1,
        platforms=(platform,),
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=(),
        mlir_module_serialized=portable_artifact(text),
        calling_convention_version=export.maximum_supported_calling_convention_version,
        module_kept_var_idx=tuple(range(len(takes))),
        uses_global_constants=False,
        _get_vjp=None,
    )


def lower_generic(function: Callable[..., Any], structs: Sequence[Any]) -> jax.stages.Lowered:
    """Lowers a JAX function for any platform."""
    return jax.jit(function, keep_unused=True).trace(*structs).lower(lowering_platforms=(GENERIC,))


def _widen_scatter(op: Any) -> Any:
    """Rewrites a scatter of one element to one of a row with one element: plugins with an older XLA:CPU crash if the
    updates have no dimension."""
    if op.name == "stablehlo.scatter" and not ir.RankedTensorType(op.operands[-1].type).shape:
        count = len(op.operands) // 2
        depth = ir.RankedTensorType(op.operands[count].type).shape[0]
        with ir.InsertionPoint(op):
            for i, shape in ((count, [1, depth]), *((count + 1 + j, [1]) for j in range(count))):
                element = ir.RankedTensorType(op.operands[i].type).element_type
                op.operands[i] = stablehlo.ReshapeOp(ir.RankedTensorType.get(shape, element), op.operands[i]).result
        n = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
        op.attributes["scatter_dimension_numbers"] = stablehlo.ScatterDimensionNumbers.get(
            [], list(n.inserted_window_dims), [], [], list(n.scattered_dims_to_operand_dims), 1
        )
    return ir.WalkResult.ADVANCE


def functions_of(text: str, prefix: str) -> str:
    """Returns the functions of a module as private ones under new names: @main becomes @prefix, @f @prefix_f."""
    module, context = parse(text)
    with context, ir.Location.unknown(context):
        operations = list(module.body.operations)
        module.operation.walk(_widen_scatter)
        for op in operations:
            name = op.attributes["sym_name"].value
            new = prefix if name == "main" else f"{prefix}_{name}"
            ir.SymbolTable.replace_all_symbol_uses(name, new, module.operation)
            ir.SymbolTable.set_symbol_name(op, new)
            ir.SymbolTable.set_visibility(op, "private")
            for attribute in ("arg_attrs", "res_attrs"):
                if attribute in op.attributes:
                    del op.attributes[attribute]
        return "".join(f"{op.operation.get_asm(use_local_scope=True, enable_debug_info=False)}\n" for op in operations)


@functools.cache
def has_device(kind: str) -> bool:
    """Whether JAX has devices of this type of torch's."""
    if kind == "cpu":
        return True
    try:
        return kind == "cuda" and bool(jax.local_devices(backend="gpu"))
    except RuntimeError:
        return False


@functools.cache
def _importer() -> Callable[[Any], jax.Array] | None:
    """Returns the function behind ``jax.dlpack.from_dlpack`` for a capsule of host memory, or None. The checks around
    it take most of its time."""
    try:
        from jax._src.lib import _jax, jaxlib_extension_version
    except ImportError:
        return None
    inner = _jax.dlpack_managed_tensor_to_buffer
    device = jax.local_devices(backend="cpu")[0]
    more = (1,) if jaxlib_extension_version >= 467 else ()  # kDLCPU
    return lambda capsule: inner(capsule, device, None, None, *more)


@functools.cache
def _exporter() -> Callable[..., Any]:
    """Returns the function behind ``Array.__dlpack__`` for an array in host memory."""
    try:
        from jax._src.lib import _jax

        inner = _jax.buffer_to_dlpack_managed_tensor
    except (ImportError, AttributeError):
        return lambda array: array.__dlpack__()
    return lambda array: inner(array.addressable_data(0), stream=None)


def exported(array: jax.Array) -> torch.Tensor:
    """Returns a tensor over an array's memory, on the same device."""
    (device,) = array.devices()
    if device.platform != "cpu":
        return torch.from_dlpack(array)
    return cast("torch.Tensor", torch._C._from_dlpack(_exporter()(array)))


def imported(tensor: Any) -> jax.Array:
    """Returns an array over a tensor's memory; fails where JAX can't use it in place."""
    importer = _importer() if tensor.device.type == "cpu" else None
    if importer is None:
        return jax.dlpack.from_dlpack(tensor)
    return importer(torch._C._to_dlpack(tensor))


def is_literal(variable: Any) -> bool:
    return isinstance(variable, jax.extend.core.Literal)


def read(values: dict[Any, Any], variable: Any) -> Any:
    return variable.val if is_literal(variable) else values[variable]


def evaluate(closed: Any, args: Sequence[Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Returns the values of all variables of a jaxpr, and the equation that computes each."""
    jaxpr = closed.jaxpr
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *args], strict=True))
    made_by = {}
    for equation in jaxpr.eqns:
        operands = [read(values, variable) for variable in equation.invars]
        given = equation.primitive.get_bind_params(equation.params)
        functions, params = given if isinstance(given, tuple) else ((), given)
        results = equation.primitive.bind(*functions, *operands, **params)
        for variable, value in zip(
            equation.outvars, results if equation.primitive.multiple_results else [results], strict=True
        ):
            values[variable] = value
            made_by[variable] = equation
    return values, made_by


def eval_jaxpr(closed: Any, consts: Sequence[Any], args: Sequence[Any]) -> Any:
    return jax.core.eval_jaxpr(closed.jaxpr, list(consts), *args)


OF_XLA = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement")


def foreign_call(lowered: jax.stages.Lowered) -> tuple[str, str] | None:
    """Returns the first function outside of the program that it calls, except XLA's own, and JAX's primitive that calls
    it; or None."""
    module = lowered.compiler_ir("stablehlo")
    found: list[tuple[str, str]] = []

    def visit(op: Any) -> Any:
        if op.name == "stablehlo.custom_call" and (target := op.attributes["call_target_name"].value) not in OF_XLA:
            names = re.findall(r'"([^"]*)"', str(op.location))
            found.append((target, names[0].split("/")[-1] if names else "?"))
        return ir.WalkResult.ADVANCE

    with module.context:
        module.operation.walk(visit)
    return found[0] if found else None
