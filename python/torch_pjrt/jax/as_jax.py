"""``as_jax``: torch functions and modules as JAX functions."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import torch
from torch import nn

from torch_pjrt.capture.attributes import Attributes, Read, noting
from torch_pjrt.capture.binding import signature_of, takes_keyword
from torch_pjrt.capture.effects import Effects
from torch_pjrt.capture.finding import find
from torch_pjrt.jax import _compat, arrays, tracing
from torch_pjrt.jax.calls import call
from torch_pjrt.jax.keys import words_of
from torch_pjrt.jax.program import Program


def as_jax(fn: Callable[..., Any], *, dtypes: str | None = None) -> Any:
    """Makes a JAX function of a torch function; or of a module, a function of its parameters and buffers, and these.

    The torch function is recorded once for arguments of each structure, shape and dtype (and for ``train()`` and
    ``eval()`` of the modules that it uses), and becomes one operation of JAX's program: StableHLO without callbacks.
    JAX's transformations all apply. Derivatives are torch's: custom autograd Functions, hooks and ``no_grad`` have the
    same effect under ``jax.grad`` as under ``backward()``. Side effects outside torch happen when it is recorded.
    Example: ``jax.jit(as_jax(torch.special.i0e))(jax.numpy.ones(3))``.

    Args:
        fn: a function of tensors in any structure that JAX knows (lists, dicts, …), which returns such a structure; or
            a module.
        dtypes: ``"jax"`` converts 64-bit tensors to 32 bits if JAX's 64-bit types are off. By default they are an
            error, except a module's counters (``num_batches_tracked``), which are converted with a warning.

    Returns:
        ``f(*args, key=None, **kwargs)`` of arrays of any shapes; numbers are converted to arrays. ``key`` is a random
        key of JAX's from which random torch operations draw; each draw has its own key. If the torch function has a
        parameter ``key`` that isn't passed by position (as attention has), ``key=`` is that parameter, unless it is a
        typed random key. For a module, the result is ``(f, params, state)``: dicts of arrays of the parameters and of
        the buffers, by name, and ``f(params, state, /, *args, key=None, **kwargs)``, which returns
        ``(result, new_state)``.

    Raises:
        ValueError: ``dtypes`` is neither ``"jax"`` nor None.
        TypeError: in a call, an argument or result is not an array, or has a dtype that the other side lacks.
        torch_pjrt.CaptureError: in a call, the function can't be one program: it needs a value (``item()``, ``if``),
            runs an operation on the host, has results whose shape is data, or writes to captured variables.
        RuntimeError: in a call, it draws random numbers without a key.
    """
    if dtypes not in (None, "jax"):
        raise ValueError(f"as_jax: dtypes is 'jax' or None, not {dtypes!r}")
    if isinstance(fn, nn.Module):
        return _module(fn, dtypes == "jax")
    return _Function(fn, fn, dtypes == "jax").wrapped()


class _Function:
    def __init__(self, fn: Callable[..., Any], source: Callable[..., Any], narrow: bool) -> None:
        self.fn, self.source, self.narrow = fn, source, narrow
        self.name = getattr(source, "__name__", type(source).__name__)
        self.modules = find(source).modules
        self.signature = signature_of(source)
        self.known: dict[Any, tuple[tracing.Traced, list[Read]]] = {}
        self.has_warned = False

    def wrapped(self) -> Callable[..., Any]:
        @functools.wraps(self.source, updated=())
        def f(*args: Any, key: Any = None, **kwargs: Any) -> Any:
            return self.call((), args, kwargs, key)

        f.__dict__.pop("__wrapped__", None)  # inspect would show the signature for tensors
        return f

    def call(self, first: tuple[Any, ...], args: tuple[Any, ...], kwargs: Any, key: Any) -> Any:
        """Runs the function; ``first`` are arguments of the torch function that come before the user's."""
        if key is not None and not _compat.is_typed_key(key) and takes_keyword(self.signature, args, "key"):
            kwargs, key = {**kwargs, "key": key}, None
        leaves, tree = jax.tree.flatten(((*first, *args), kwargs))
        values = [_array(leaf, self.name, i) for i, leaf in enumerate(leaves)]
        forms = tuple((value.shape, value.dtype) for value in values)
        settings = torch.get_default_dtype(), _compat.has_x64(), self.narrow
        modes = tuple(module.training for module in self.modules)
        at = (tree, forms, key is not None, settings, modes)
        traced, read = self.known.get(at, (None, []))
        if traced is None or any(each.changed() for each in read):
            traced, read = self.known[at] = self.trace(tree, forms, key is not None)
        words = [] if key is None else [words_of(key)]
        results = call(Program(traced.recorded), [*values, *words, *traced.enclosed])
        return jax.tree.unflatten(traced.tree, results)

    def trace(self, tree: Any, forms: Sequence[Any], keyed: bool) -> tuple[tracing.Traced, list[Read]]:
        def on_tensors(tensors: list[torch.Tensor]) -> Any:
            args, kwargs = jax.tree.unflatten(tree, tensors)
            return self.fn(*args, **kwargs)

        found = find(self.source)
        found.things += [(type(module).__name__, module) for module in found.modules]
        effects, attributes = Effects(found), Attributes(found.modules)
        structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in forms]
        _check_shapes(structs, self.name)
        with noting(found.read):
            traced = tracing.trace(
                on_tensors, structs, name=self.name, source=self.source, keyed=keyed, narrow=self.narrow
            )
        effects.check()
        if traced.enclosed and not self.has_warned:
            self.has_warned = True
            scope: Any = traced.recorded.scope
            tracing.warn_of_constants(self.name, self.source, traced, scope.mode.enclosed())
        return traced, attributes.read(found.read, attributes.assigned())


def _array(leaf: Any, name: str, index: int) -> Any:
    if isinstance(leaf, torch.Tensor):
        raise TypeError(
            f"argument {index} of {name} is a torch tensor, and JAX functions take arrays: "
            "torch_pjrt.jax.jax_view(tensor)"
        )
    try:
        array = leaf if _compat.is_tracer(leaf) or isinstance(leaf, jax.Array) else jax.numpy.asarray(leaf)
    except TypeError as error:
        raise TypeError(
            f"argument {index} of {name} is a {type(leaf).__name__}, which is no array; give what is no array "
            f"beforehand: as_jax(functools.partial({name}, ...))"
        ) from error
    arrays.torch_dtype(array.dtype, f"argument {index} of {name}")
    return array


def _check_shapes(structs: Sequence[Any], name: str) -> None:
    for i, struct in enumerate(structs):
        if not all(isinstance(size, int) for size in struct.shape):
            raise TypeError(
                f"argument {i} of {name} has the shape {struct.shape}, with a size that is not known: torch records "
                "for known sizes. Export for each size"
            )


# --- modules ----------------------------------------------------------------------------------------------------------


def _module(module: nn.Module, narrow: bool) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]:
    name = type(module).__name__

    def arrays_of(named: Iterator[tuple[str, torch.Tensor]], kind: str) -> dict[str, Any]:
        found = {}
        for key, tensor in named:
            if nn.parameter.is_lazy(tensor):
                raise ValueError(f"{kind} '{key}' of {name} has no shape yet: run the lazy module once before")
            tensor = tensor.detach()
            is_counter = kind == "buffer" and tensor.ndim == 0 and not tensor.dtype.is_floating_point
            short = arrays.narrowed(tensor) if narrow or is_counter else tensor
            if short is not tensor and not narrow:
                counters.append((key, tensor.dtype, short.dtype))
            found[key] = arrays.to_jax(short, f"{kind} '{key}' of {name}")
        return found

    counters: list[tuple[str, torch.dtype, torch.dtype]] = []

    params = arrays_of(module.named_parameters(), "parameter")
    state = arrays_of(module.named_buffers(), "buffer")
    if counters:
        key, wide, short = counters[0]
        more = f" and {len(counters) - 1} more" if len(counters) > 1 else ""
        warnings.warn(
            f"as_jax({name}): the counter '{key}'{more} is of dtype {wide}, which JAX has only with "
            f"jax.config.update('jax_enable_x64', True): it is {short} in the state. "
            "dtypes='jax' converts without saying so",
            stacklevel=3,
        )

    def functional(params: Any, state: Any, /, *args: Any, **kwargs: Any) -> Any:
        buffers = {key: tensor.detach() for key, tensor in state.items()}  # buffers have no gradients in torch
        with substituted(module, {**params, **buffers}, name) as held:
            result = module(*args, **kwargs)
            return result, held(state)

    inner = _Function(functional, module, narrow)

    def f(params: Any, state: Any, /, *args: Any, key: Any = None, **kwargs: Any) -> Any:
        return inner.call((params, state), args, kwargs, key)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"``{name}`` as a JAX function of (params, state, *args): gives (result, new_state)."
    return f, params, state


@contextmanager
def substituted(module: nn.Module, tensors: dict[str, torch.Tensor], name: str) -> Iterator[Callable[..., Any]]:
    """Replaces the module's parameters and buffers in the block, in all places that hold them. Yields a function that
    returns the current tensors in some of these places."""
    own = dict((*module.named_parameters(), *module.named_buffers()))
    unknown = sorted(tensors.keys() - own.keys()) or sorted(own.keys() - tensors.keys())
    if unknown:
        raise TypeError(f"{name}: params and state have the names that as_jax gave; '{unknown[0]}' is not in both")
    by_id = {id(own[key]): tensor for key, tensor in tensors.items()}
    places: list[tuple[dict[str, Any], str, Any]] = []
    first: dict[str, tuple[dict[str, Any], str]] = {}
    for prefix, each in module.named_modules():
        for kept in (each._parameters, each._buffers):
            for key, tensor in list(kept.items()):
                if tensor is not None:
                    places.append((kept, key, tensor))
                    kept[key] = by_id[id(tensor)]
                    first[f"{prefix}.{key}" if prefix else key] = (kept, key)

    def held(names: Any) -> dict[str, Any]:
        return {each: first[each][0][first[each][1]] for each in names}

    try:
        yield held
    finally:
        for kept, key, tensor in places:
            kept[key] = tensor
