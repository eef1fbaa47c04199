"""JAX functions as programs for torch: their StableHLO, derivatives and batches, and the operator that calls them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary, ref

import jax
import torch

from torch_pjrt import _C
from torch_pjrt.jax import _compat, arrays
from torch_pjrt.jax.apart import apart
from torch_pjrt.jax.registry import Registry
from torch_pjrt.program.placeholders import make_placeholder
from torch_pjrt.program.tracing_scope import tracing

KEPT = 256
_programs: Registry[JaxProgram] = Registry(KEPT)


def is_moving(struct: Any) -> bool:
    return bool(jax.numpy.issubdtype(struct.dtype, jax.numpy.inexact))


class JaxProgram:
    """A JAX function of arrays of certain shapes, which returns a tuple of arrays.

    Raises:
        NotImplementedError: JAX lowers one of its primitives on no other platform than its own.
    """

    def __init__(self, name: str, function: Callable[..., Sequence[Any]], structs: Sequence[Any]) -> None:
        self.name, self.structs = name, list(structs)
        with apart():
            self.jaxpr = jax.make_jaxpr(function)(*structs)
        self.results: list[Any] = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in self.jaxpr.out_avals]
        self.dtypes = [arrays.torch_dtype(r.dtype, f"result {i} of {name}") for i, r in enumerate(self.results)]
        self.number = _programs.add(self)
        self.tree: Any = None  # the tree of the results, if they had one
        self.moving = [i for i, struct in enumerate(self.structs) if is_moving(struct)]
        self.moving_results = [i for i, struct in enumerate(self.results) if is_moving(struct)]
        own = ref(self)  # the garbage collector can't traverse a Function
        self.compiled = _C.Function(lambda arguments: own()._compile(arguments), _plain)  # type: ignore[union-attr]
        self._made: dict[Any, Any] = {}
        self._batches: WeakValueDictionary[Any, JaxProgram] = WeakValueDictionary()

    def function(self, *args: Any) -> Sequence[Any]:
        return tuple(_compat.eval_jaxpr(self.jaxpr, self.jaxpr.consts, args))

    def _once(self, at: Any, make: Callable[[], Any]) -> Any:
        if at not in self._made:
            with apart():
                self._made[at] = make()
        return self._made[at]

    # --- what runs

    def constants(self, device: torch.device) -> list[torch.Tensor]:
        """Returns the arrays that the function captures, which are the last arguments of its programs."""

        def make() -> list[torch.Tensor]:
            return [arrays.to_torch(jax.numpy.asarray(value)).to(device) for value in self._lifted()]

        made: list[torch.Tensor] = self._once(("constants", device), make)
        return made

    def _lifted(self) -> list[Any]:
        """Returns the captured values except random keys, which are two words."""
        return [value for value in self.jaxpr.consts if not _compat.is_typed_key(value)]

    def on_device(self, index: int) -> Any:
        """Returns a function of tensors, arguments and constants, on a pjrt device."""
        return self._once(("device", index), lambda: self._function(index))

    def _all_structs(self) -> list[Any]:
        consts = [jax.typeof(jax.numpy.asarray(value)) for value in self._lifted()]
        return [*self.structs, *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in consts)]

    def _text(self) -> tuple[str, str]:
        count, jaxpr = (
            len(self.structs),
            self.jaxpr,
        )  # JAX keeps the function for a while, which shall not keep the program

        def lifted(*values: Any) -> Sequence[Any]:
            given = iter(values[count:])
            consts = [value if _compat.is_typed_key(value) else next(given) for value in jaxpr.consts]
            return tuple(_compat.eval_jaxpr(jaxpr, consts, values[:count]))

        try:
            lowered = _compat.lower_generic(lifted, self._all_structs())
        except NotImplementedError as error:
            raise NotImplementedError(
                f"call_jax({self.name}): {error}. It has no lowering of JAX's that works on any platform; call it "
                "outside of torch, or use another algorithm"
            ) from error
        if (foreign := _compat.foreign_call(lowered)) is not None:
            raise NotImplementedError(
                f"call_jax({self.name}): JAX's primitive '{foreign[1]}' calls '{foreign[0]}' of a library of JAX's "
                "own, which a PJRT plugin lacks; call it outside of torch, or use another algorithm"
            )
        text = lowered.as_text()
        name = f"jax_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        return name, _compat.functions_of(text, name)

    def _function(self, index: int) -> Any:
        name, functions = self._once("text", self._text)

        def form(struct: Any) -> Any:
            return arrays.TO_TORCH[jax.numpy.dtype(struct.dtype)], list(struct.shape)

        operands, results = ([form(struct) for struct in structs] for structs in (self._all_structs(), self.results))
        return _C.ForeignFunction(f"jax::{self.name}", name, functions, operands, results, index)

    def _compile(self, arguments: Sequence[torch.Tensor]) -> Any:
        trace = _C.Trace()
        home = arguments[0].device
        with tracing(), torch.no_grad():
            given = [make_placeholder(trace, x) for x in arguments]
            results = self.on_device(given[0].device.index)(given)
            return trace.compile(results, [home] * len(results), home)

    # --- derived programs

    def vjp(self) -> JaxProgram:
        """Returns (arguments, cotangents of the moving results) -> gradients of the moving arguments."""

        def function(*args: Any) -> Sequence[Any]:
            given, cotangents = args[: len(self.structs)], args[len(self.structs) :]
            _, pull = self._pull(given)
            return tuple(pull(tuple(cotangents)))

        structs = [*self.structs, *(self.results[i] for i in self.moving_results)]
        made: JaxProgram = self._once("vjp", lambda: JaxProgram(f"{self.name}_vjp", function, structs))
        return made

    def _of_moving(self, given: Sequence[Any]) -> Callable[..., Any]:
        """Returns the function of the moving arguments, whose auxiliary results are all results."""

        def of_moving(*values: Any) -> Any:
            filled = list(given)
            for i, value in zip(self.moving, values, strict=True):
                filled[i] = value
            results = tuple(self.function(*filled))
            return tuple(results[i] for i in self.moving_results), results

        return of_moving

    def _pull(self, given: Sequence[Any]) -> Any:
        _, pull, results = jax.vjp(self._of_moving(given), *(given[i] for i in self.moving), has_aux=True)
        return results, pull

    def with_residuals(self) -> Residuals:
        made: Residuals = self._once("residuals", lambda: Residuals(self))
        return made

    def jvp(self) -> JaxProgram:
        """Returns (arguments, tangents of the moving arguments) -> tangents of the moving results."""

        def function(*args: Any) -> Sequence[Any]:
            given, tangents = args[: len(self.structs)], args[len(self.structs) :]
            moving = tuple(given[i] for i in self.moving)
            return tuple(jax.jvp(self._of_moving(given), moving, tuple(tangents), has_aux=True)[1])

        structs = [*self.structs, *(self.structs[i] for i in self.moving)]
        made: JaxProgram = self._once("jvp", lambda: JaxProgram(f"{self.name}_jvp", function, structs))
        return made

    def batched(self, size: int, dims: tuple[int | None, ...]) -> JaxProgram:
        """Returns the program of a batch; results have the examples in dimension 0."""

        def function(*args: Any) -> Sequence[Any]:
            return tuple(jax.vmap(self.function, dims, 0, axis_size=size)(*args))

        def make() -> JaxProgram:
            structs = [
                struct if dim is None else jax.ShapeDtypeStruct(_inserted(struct.shape, dim, size), struct.dtype)
                for struct, dim in zip(self.structs, dims, strict=True)
            ]
            return JaxProgram(f"{self.name}_vmap", function, structs)

        made = self._batches.get((size, dims))
        if made is None:
            with apart():
                made = self._batches[size, dims] = make()
        return made


def _plain(_: Any) -> Any:
    raise AssertionError("the operator itself is asked where there are no values")


def _inserted(shape: Sequence[int], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim:])


class Residuals:
    """A program split for a backward: ``forward`` returns the results and the residuals, ``pull`` takes the residuals,
    the arguments that it needs, and the cotangents."""

    def __init__(self, program: JaxProgram) -> None:
        self.program = program
        tree: Any = None
        sources: list[int | None] = []  # for each residual, the index of the argument that it equals, or None

        def forward(*args: Any) -> Sequence[Any]:
            nonlocal tree, sources
            results, pull = program._pull(args)
            residuals, tree = jax.tree.flatten(pull)
            sources = [next((i for i, arg in enumerate(args) if arg is value), None) for value in residuals]
            own = [value for value, source in zip(residuals, sources, strict=True) if source is None]
            return (*results, *own)

        self.forward = JaxProgram(program.name, forward, program.structs)
        self.taken = list(dict.fromkeys(source for source in sources if source is not None))
        own = self.forward.results[len(program.results) :]
        fixed = list(sources)

        def pull(*args: Any) -> Sequence[Any]:
            kept, given = iter(args[: len(own)]), args[len(own) : len(own) + len(self.taken)]
            taken = dict(zip(self.taken, given, strict=True))
            residuals = [next(kept) if source is None else taken[source] for source in fixed]
            return tuple(jax.tree.unflatten(tree, residuals)(tuple(args[len(own) + len(self.taken) :])))

        cotangents = [program.results[i] for i in program.moving_results]
        structs = [*own, *(program.structs[i] for i in self.taken), *cotangents]
        self.pull = JaxProgram(f"{program.name}_vjp", pull, structs)


# --- the operator -----------------------------------------------------------------------------------------------------

_library = torch.library.Library("torch_pjrt", "FRAGMENT")
_library.define("jax_call(Tensor[] arguments, str program) -> Tensor[]")


def _on_host(arguments: list[torch.Tensor], program: str) -> list[torch.Tensor]:
    found = _programs[program]
    return list(found.compiled.call_with(*arguments, *found.constants(arguments[0].device)))


def _on_pjrt(arguments: list[torch.Tensor], program: str) -> list[torch.Tensor]:
    found, device = _programs[program], arguments[0].device
    return list(found.on_device(device.index)([*arguments, *found.constants(device)]))


def _shapes(arguments: list[torch.Tensor], program: str) -> list[torch.Tensor]:
    """Returns the results' shapes while torch traces; it pins the program, whose number may become compiled code."""
    _programs.pin(program)
    found = _programs[program]
    return [
        arguments[0].new_empty(struct.shape, dtype=dtype)
        for struct, dtype in zip(found.results, found.dtypes, strict=True)
    ]


_library.impl("jax_call", _on_host, "CPU")
_library.impl("jax_call", _on_host, "CUDA")
_library.impl("jax_call", _on_pjrt, "PrivateUse1")
torch.library.register_fake("torch_pjrt::jax_call", _shapes, lib=_library)


class _Call(torch.autograd.Function):
    """A differentiable call of a program. Residuals are results like others, so the backward can be differentiated
    again."""

    @staticmethod
    def forward(number: str, split: bool, *arguments: torch.Tensor) -> Any:
        program = _programs[number]
        called = program.with_residuals().forward if split else program
        return tuple(torch.ops.torch_pjrt.jax_call(list(arguments), called.number))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        number, ctx.split, *arguments = inputs
        ctx.program = _programs[number]
        ctx.save_for_backward(*arguments, *output)
        ctx.save_for_forward(*arguments)
        ctx.mark_non_differentiable(*(tensor for tensor in output if not arrays.is_differentiable(tensor.dtype)))
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        program = ctx.program
        count = len(program.structs)
        saved = ctx.saved_tensors  # once: checkpoints unpack them once
        arguments, results = saved[:count], saved[count:]
        own = results[len(program.results) :]
        given = cotangents[: len(program.results)]
        if any(cotangent is not None for cotangent in cotangents[len(program.results) :]):
            whole = program.with_residuals().forward
            gradients = apply(whole.vjp(), [*arguments, *_materialized(whole, results, cotangents)])
        elif ctx.split:
            split = program.with_residuals()
            taken = [arguments[i] for i in split.taken]
            gradients = apply(split.pull, [*own, *taken, *_materialized(program, results, given)])
        else:
            gradients = apply(program.vjp(), [*arguments, *_materialized(program, results, given)])
        by_argument: list[Any] = [None] * count
        for i, gradient in zip(program.moving, gradients, strict=True):
            by_argument[i] = arrays.conjugated(gradient)
        return None, None, *by_argument

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, *tangents: Any) -> Any:
        program = ctx.program
        called = program.with_residuals().forward if ctx.split else program
        arguments = ctx.saved_tensors
        filled = [torch.zeros_like(arguments[i]) if tangents[i] is None else tangents[i] for i in called.moving]
        given = iter(apply(called.jvp(), [*arguments, *filled]))
        return tuple(next(given) if is_moving(result) else None for result in called.results)

    @staticmethod
    def vmap(info: Any, in_dims: Any, number: str, split: bool, *arguments: torch.Tensor) -> Any:
        program = _programs[number]
        called = program.with_residuals().forward if split else program
        results = apply(called.batched(info.batch_size, tuple(in_dims[2:])), arguments)
        return tuple(results), tuple(0 for _ in results)


def _materialized(program: JaxProgram, results: Sequence[Any], cotangents: Sequence[Any]) -> list[torch.Tensor]:
    return [
        torch.zeros_like(results[i]) if cotangents[i] is None else arrays.conjugated(cotangents[i])
        for i in program.moving_results
    ]


def apply(program: JaxProgram, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Calls a program through torch's autograd and its function transforms."""
    _programs.use(program.number)
    needs = torch.is_grad_enabled() and any(argument.requires_grad for argument in arguments)
    return list(_Call.apply(program.number, needs, *arguments))[: len(program.results)]
