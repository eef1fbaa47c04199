"""``torch_view`` and ``jax_view``: torch code inside of a JAX function.

While JAX traces, an array's torch view is a placeholder, and its array is kept for as long as anything depends on the
placeholder. ``jax_view`` of a tensor finds the placeholders that it depends on, and makes one operation of the calls
recorded in between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import torch
from torch.utils.weak import TensorWeakRef

from torch_pjrt import _C
from torch_pjrt.capture.recording import recording
from torch_pjrt.jax import _compat, arrays, forbidden
from torch_pjrt.jax.apart import apart
from torch_pjrt.jax.calls import call
from torch_pjrt.jax.keys import words_of
from torch_pjrt.jax.linalg import LinearAlgebra
from torch_pjrt.jax.program import Program, Recorded, placeholder, struct_of


@dataclass
class _Source:
    """A placeholder and its array; a weak record, which only dependent tensors keep alive."""

    placeholder: Any
    leaf: TensorWeakRef
    array: Any


_sources: dict[int, _Source] = {}  # by the placeholder's address


def _value_needed(address: int, cause: str) -> str:
    return forbidden.value_needed(_sources[address].array, cause) if address in _sources else ""


_C.set_foreign_trace(_value_needed, forbidden.before_write)


def _sweep() -> None:
    for address in [address for address, source in _sources.items() if not source.placeholder.is_alive]:
        del _sources[address]


def torch_view(value: Any) -> Any:
    """Returns torch tensors of JAX arrays, in any structure; leaves of other types stay unchanged.

    The tensor of a concrete array is on the same device and shares its memory. JAX's arrays are immutable: the first
    write to the tensor copies the memory. While JAX traces, the tensor of a tracer or an array is on the device
    ``"pjrt"`` and has no value, and torch calls on it become part of JAX's program. Example: ``t = torch_view(x)``.

    Raises:
        TypeError: torch lacks the array's dtype.
        ValueError: the array is on several devices.
    """
    if isinstance(value, jax.Array):
        return _viewed(value)
    return jax.tree.map(lambda leaf: _viewed(leaf) if isinstance(leaf, jax.Array) else leaf, value)


def _viewed(array: Any) -> torch.Tensor:
    if not _compat.is_tracer(array) and not _compat.is_tracing():
        return arrays.to_torch(array)
    _sweep()
    forbidden.seal()
    # Pending work that uses the placeholder could not be read before the trace is forgotten.
    _C.start_all("torch_pjrt.sync")
    leaf = placeholder(arrays.torch_dtype(array.dtype, "the array"), array.shape)
    known = _C.Placeholder(leaf)
    _sources[known.address] = _Source(known, TensorWeakRef(leaf), array)
    return leaf.clone()  # a tensor that may be written to


def jax_view(value: Any, *, key: Any = None, dtypes: str | None = None) -> Any:
    """Returns JAX arrays of torch tensors, in any structure; leaves of other types stay unchanged.

    The array of a tensor with a value is on the same device, and shares its memory if JAX can use it (dense, aligned to
    64 bytes); a later write to the tensor copies the memory first. A tensor that depends on torch views of tracers
    becomes a tracer: the result of one operation, through which JAX differentiates and batches. Example:
    ``y = jax_view(torch.relu(torch_view(x)))``.

    Args:
        value: a tensor or a structure.
        key: a random key of JAX's, needed if the torch code drew random numbers.
        dtypes: ``"jax"`` converts 64-bit tensors to 32 bits if JAX's 64-bit types are off. By default they are an
            error.

    Raises:
        TypeError: JAX lacks a tensor's dtype.
        ValueError: a tensor with a value requires grad, of which JAX sees nothing.
        RuntimeError: the tensor depends on tracers of a transformation that has ended, or random numbers were drawn
            without a key.
    """
    if isinstance(value, torch.Tensor) and value.device.type == "cpu":
        return _array(value, dtypes == "jax")
    leaves, tree = jax.tree.flatten(value)
    traced = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and _is_traced(leaf)]
    if traced:
        results = _call([leaves[i] for i in traced], key, dtypes == "jax")
        for i, result in zip(traced, results, strict=True):
            leaves[i] = result
    return jax.tree.unflatten(tree, [_array(leaf, dtypes == "jax") for leaf in leaves])


def _array(leaf: Any, narrow: bool) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return arrays.to_jax(arrays.narrowed(leaf) if narrow else leaf)


def _is_traced(tensor: torch.Tensor) -> bool:
    """Whether it is part of JAX's trace; tensors made next to views are, too, because they may be random."""
    return tensor.device.type == "pjrt" and (_compat.is_tracing() or bool(_C.placeholders_below([tensor])))


@contextlib.contextmanager
def _scope() -> Iterator[None]:
    with apart(), recording(), LinearAlgebra():
        yield


def _call(tensors: Sequence[torch.Tensor], key: Any, narrow: bool) -> list[Any]:
    addresses = list(dict.fromkeys(_C.placeholders_below(list(tensors))))
    unknown = [address for address in addresses if address not in _sources]
    if unknown:
        raise RuntimeError(
            "this tensor was recorded for another program (as_jax, torch.compile, compile_step), and is no view of "
            "a JAX array: return it from the function that made it"
        )
    sources = [_sources[address] for address in addresses]
    with _scope(), torch.enable_grad():
        outputs = [arrays.narrowed(tensor) if narrow else tensor for tensor in tensors]
        outputs = [output.resolve_conj().resolve_neg() for output in outputs]
    for output in outputs:
        arrays.jax_dtype(output.dtype, "the tensor")
    inputs = [_leaf_of(source, address) for source, address in zip(sources, addresses, strict=True)]
    words = [] if key is None else [placeholder(torch.uint32, (2,))]
    given = [*inputs, *words]
    recorded = Recorded(
        "torch_view",
        [struct_of(tensor) for tensor in given],
        [struct_of(tensor) for tensor in outputs],
        lambda: (given, outputs),
        None if key is None else len(inputs),
        _scope,
    )
    recorded.text()
    return call(Program(recorded), [*(source.array for source in sources), *([] if key is None else [words_of(key)])])


def _leaf_of(source: _Source, address: int) -> torch.Tensor:
    """Returns the tensor in the autograd graph, or a new one of the placeholder if there is none."""
    leaf = source.leaf()
    if leaf is not None:
        return leaf
    tensor: torch.Tensor = source.placeholder.tensor()
    return tensor.requires_grad_() if arrays.is_differentiable(tensor.dtype) else tensor
