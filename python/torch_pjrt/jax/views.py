"""``torch_view`` and ``jax_view``: torch code in the middle of a JAX function.

While JAX traces, an array's torch view is a placeholder, and the array that it stands for is kept beside it for as
long as anything rests on it. ``jax_view`` of a tensor finds the placeholders below it, and makes one operation of all
that was recorded in between.
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
    """What a placeholder stands for. It is not held: its own users hold it."""

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
    """The torch tensors of JAX arrays; in any structure, whose other leaves stay as they are.

    Of a concrete array it is a tensor on the same device, over the same memory. JAX's arrays never change: a write to
    the tensor copies the memory first, once. While JAX traces, of tracers and arrays alike, it is a tensor on the
    device "pjrt" that has no value: what torch does with it becomes part of JAX's program.

    Raises:
        TypeError: torch has no such dtype.
        ValueError: the array is spread over several devices.
    """
    if isinstance(value, jax.Array):
        return _viewed(value)
    return jax.tree.map(lambda leaf: _viewed(leaf) if isinstance(leaf, jax.Array) else leaf, value)


def _viewed(array: Any) -> torch.Tensor:
    if not _compat.is_tracer(array) and not _compat.is_tracing():
        return arrays.to_torch(array)
    _sweep()
    forbidden.seal()
    # What is pending and meets the placeholder could not be read before the trace is forgotten.
    _C.start_all("torch_pjrt.sync")
    leaf = placeholder(arrays.torch_dtype(array.dtype, "the array"), array.shape)
    known = _C.Placeholder(leaf)
    _sources[known.address] = _Source(known, TensorWeakRef(leaf), array)
    return leaf.clone()  # which may be written to


def jax_view(value: Any, *, key: Any = None, dtypes: str | None = None) -> Any:
    """The JAX arrays of torch tensors; in any structure, whose other leaves stay as they are.

    Of a tensor with a value it is an array on the same device, over the same memory where JAX can use it (dense, at a
    multiple of 64 bytes); a later write to the tensor copies the memory first. Of a tensor that was computed of torch
    views of tracers it is a tracer: the value of one operation, through which JAX differentiates and batches.

    Args:
        key: a random key of JAX's, where the torch code drew random numbers.
        dtypes: ``"jax"`` makes 64-bit tensors 32-bit ones where JAX's 64-bit types are off; default: they are an error.

    Raises:
        TypeError: JAX has no such dtype.
        ValueError: a tensor with a value requires grad, of which JAX sees nothing.
        RuntimeError: the tensor rests on tracers of another transformation that is over, or random numbers were drawn
            and there is no key.
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
    """Is it part of what JAX traces? What was made beside views is, too: it may be random."""
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
    """The tensor that the autograd graph has, or another of the same placeholder where none has it."""
    leaf = source.leaf()
    if leaf is not None:
        return leaf
    tensor: torch.Tensor = source.placeholder.tensor()
    return tensor.requires_grad_() if arrays.is_differentiable(tensor.dtype) else tensor
