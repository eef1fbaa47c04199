"""``call_jax`` and ``from_jax``: JAX functions as torch functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np
import torch

from torch_pjrt.jax import _compat, arrays
from torch_pjrt.jax.functions import KEPT, JaxProgram, apply
from torch_pjrt.jax.registry import Registry


@torch._dynamo.dont_skip_tracing
def call_jax(jax_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls ``jax_fn(*args, **kwargs)`` on torch tensors, as part of torch's program.

    JAX lowers the function once for arguments of each structure, shape and dtype. Its StableHLO becomes part of the
    recorded graph on ``"pjrt"``, and of the program under ``torch.compile``, ``compile_step`` and ``jit``, without a
    graph break. On CPU tensors in eager mode it is a compiled program of its own. Gradients are JAX's (``jax.vjp``), to
    any order, and transforms of ``torch.func`` apply. Example: ``y = call_jax(jax.nn.gelu, x)``.

    Args:
        jax_fn: a function of arrays in any structure that JAX knows, which returns such a structure; it may be the
            result of ``jax.jit``.
        args, kwargs: tensors on one device, and JAX or NumPy arrays. Other values are static: they are passed
            unchanged, and each combination of them is a program.

    Returns:
        The results as tensors on the arguments' device.

    Raises:
        TypeError: a tensor has 64 bits while JAX's 64-bit types are off, or an argument is neither an array nor
            hashable.
        ValueError: the tensors are on several devices, or there are none.
        NotImplementedError: JAX lowers a primitive only to a library of its own; the message names it.
    """
    return _traced(_number_of(jax_fn) + "", args, kwargs)  # for Dynamo, a sum of strings is a new constant


def from_jax(jax_fn: Callable[..., Any], *, dtypes: str | None = None) -> Callable[..., Any]:
    """Returns ``g(*args, **kwargs)``, which is ``call_jax`` of one function.

    Args:
        jax_fn: see ``call_jax``.
        dtypes: ``"jax"`` converts 64-bit tensors to 32 bits if JAX's 64-bit types are off. By default they are an
            error.

    Raises:
        ValueError: ``dtypes`` is neither ``"jax"`` nor None. Calls raise as ``call_jax`` does.
    """
    if dtypes not in (None, "jax"):
        raise ValueError(f"from_jax: dtypes is 'jax' or None, not {dtypes!r}")
    held = _callable_of(jax_fn, narrow=dtypes == "jax")
    number = held.number

    @torch._dynamo.dont_skip_tracing
    def g(*args: Any, **kwargs: Any) -> Any:
        return _traced(number, args, kwargs)

    g.__name__ = g.__qualname__ = getattr(jax_fn, "__name__", type(jax_fn).__name__)
    g.__doc__ = getattr(jax_fn, "__doc__", None)
    g._held = held
    return g


class _Callable:
    """A JAX function, and the programs that were made of it."""

    def __init__(self, function: Callable[..., Any], narrow: bool) -> None:
        self.function, self.narrow = function, narrow
        self.number = _callables.add(self)
        self.name = getattr(function, "__name__", type(function).__name__)
        self.programs: WeakValueDictionary[Any, JaxProgram] = WeakValueDictionary()

    def __call__(self, args: Any, kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        home = self._home(leaves)
        operands, statics = [], []
        for i, leaf in enumerate(leaves):
            operand = self._operand(leaf, i, home)
            statics.append(leaf if operand is None else None)
            if operand is not None:
                operands.append(operand)
        places = tuple(operand is None for operand in statics)
        forms = tuple((tuple(x.shape), x.dtype) for x in operands)
        at = (tree, forms, places, _compat.has_x64(), *statics)
        try:
            known = self.programs.get(at)
        except TypeError:
            kind = next(type(each).__name__ for each in statics if not _is_hashable(each))
            raise TypeError(
                f"call_jax({self.name}): an argument is a {kind}, which is neither an array nor hashable: close over "
                "it (functools.partial), or pass its arrays"
            ) from None
        if known is None:
            known = self.programs[at] = self._program(tree, operands, statics)
        return jax.tree.unflatten(known.tree, apply(known, operands))

    def _home(self, leaves: list[Any]) -> torch.device:
        devices = dict.fromkeys(leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor))
        if not devices:
            raise ValueError(
                f"call_jax({self.name}): there is no tensor among the arguments, so no device to compute on: call "
                "the JAX function itself, and take its result by torch_view"
            )
        if len(devices) > 1:
            where = " and ".join(f"'{device}'" for device in devices)
            raise ValueError(
                f"call_jax({self.name}): the tensors are on one device, not on {where}: move them (x.to(y.device))"
            )
        return next(iter(devices))

    def _operand(self, leaf: Any, index: int, home: torch.device) -> torch.Tensor | None:
        if isinstance(leaf, (jax.Array, np.ndarray)):
            if _compat.is_tracer(leaf):
                raise TypeError(f"call_jax({self.name}): argument {index} is a tracer of JAX's: give torch_view of it")
            return arrays.to_torch(leaf, f"argument {index} of {self.name}").to(home)
        if not isinstance(leaf, torch.Tensor):
            return None
        if self.narrow:
            leaf = arrays.narrowed(leaf)
        arrays.jax_dtype(leaf.dtype, f"argument {index} of {self.name}")
        return leaf

    def _program(self, tree: Any, operands: list[torch.Tensor], statics: list[Any]) -> JaxProgram:
        structs = [jax.ShapeDtypeStruct(tuple(map(int, x.shape)), arrays.TO_JAX[x.dtype]) for x in operands]
        results: Any = None  # the tree of the results

        def flat(*values: Any) -> Any:
            nonlocal results
            rest = iter(values)
            filled = [next(rest) if static is None else static for static in statics]
            args, kwargs = jax.tree.unflatten(tree, filled)
            leaves, results = jax.tree.flatten(self.function(*args, **kwargs))
            if not leaves:
                raise TypeError(f"call_jax({self.name}): the function gives None: return arrays")
            for i, leaf in enumerate(leaves):
                if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
                    raise TypeError(
                        f"call_jax({self.name}): the function gives a {type(leaf).__name__} as result {i}, which is no "
                        "array"
                    )
            return tuple(leaves)

        program = JaxProgram(self.name, flat, structs)
        program.tree = results
        return program


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


_callables: Registry[_Callable] = Registry(KEPT)
_numbers: WeakValueDictionary[Any, _Callable] = WeakValueDictionary()


def _callable_of(function: Callable[..., Any], narrow: bool) -> _Callable:
    at = (id(function), narrow)  # the entry keeps the function alive
    known = _numbers.get(at)
    if known is None:
        if not callable(function):
            raise TypeError(f"call_jax takes a JAX function, not a {type(function).__name__}")
        known = _numbers[at] = _Callable(function, narrow)
    return known


@torch._dynamo.assume_constant_result
def _number_of(function: Callable[..., Any]) -> str:
    found = _callable_of(function, narrow=False)
    _callables.use(found.number)
    if torch._guards.TracingContext.try_get() is not None:  # the number becomes a constant of compiled code
        _callables.pin(found.number)
    return found.number


@functools.wraps(_Callable.__call__)
def _called(number: str, args: Any, kwargs: Any) -> Any:
    return _callables[number](args, kwargs)


_traced = torch._dynamo.nonstrict_trace(_called)  # one call in Dynamo's graph, which AOTAutograd traces
