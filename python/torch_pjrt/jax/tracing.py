"""Runs a torch function on placeholders for JAX arrays, and returns the recording."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import torch
from torch._higher_order_ops.flex_attention import flex_attention, sdpa_dense
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_pjrt import _C
from torch_pjrt.capture.composed import cumulative_momenta
from torch_pjrt.capture.finding import find
from torch_pjrt.capture.recording import Recording, recording
from torch_pjrt.errors import CaptureError, ValueNeeded
from torch_pjrt.jax import _compat, arrays
from torch_pjrt.jax.apart import apart
from torch_pjrt.jax.forbidden import LIBRARIES, as_jax_says
from torch_pjrt.jax.linalg import LinearAlgebra
from torch_pjrt.jax.program import DEVICE, Recorded, placeholder, struct_of
from torch_pjrt.program.stack import place_of


class Enclosed(Recording):
    """Makes tensors that the function captures arguments of the program; in a derivative, or if JAX lacks the dtype,
    constants."""

    def __init__(self) -> None:
        super().__init__("none", follow=False)
        self.is_complete = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is flex_attention:  # its gradient has no gradient itself
            with self:
                return sdpa_dense(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    def piece(self, real: torch.Tensor, name: str, container: Any, key: Any) -> torch.Tensor:
        if id(real) not in self.by_id and (self.is_complete or self._is_wide(real)):
            return real.detach().to(DEVICE)
        return super().piece(real, name, container, key)

    @staticmethod
    def _is_wide(real: torch.Tensor) -> bool:
        return real.dtype in arrays.NARROW and not _compat.has_x64()

    def enclosed(self) -> list[torch.Tensor]:
        return [piece.real for piece in self.pieces]


class Scope:
    """Records calls in blocks, as parts of one trace; random draws continue from block to block."""

    def __init__(self, mode: Recording) -> None:
        self.mode = mode
        self.generator: torch.Tensor | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        # Fused attention has no second derivative.
        with apart(), recording(), sdpa_kernel(SDPBackend.MATH), LinearAlgebra():
            if self.generator is None:
                _C.default_generator(0).manual_seed(0)
            else:
                torch.pjrt.set_rng_state(self.generator)
            with self.mode:
                yield
            self.generator = torch.pjrt.get_rng_state()


@dataclass
class Traced:
    recorded: Recorded
    enclosed: list[jax.Array]  # the last arguments: captured tensors
    tree: Any  # the tree of the results


def names_in(fn: Callable[..., Any]) -> dict[int, str]:
    """Returns the names of tensors of the modules that ``fn`` uses, by id."""
    names: dict[int, str] = {}
    for module in find(fn).modules:
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            names.setdefault(id(tensor), f"{type(module).__name__}.{name}")
    return names


def _leaves(result: Any, name: str) -> tuple[list[Any], Any]:
    result = _plain(result)
    leaves = jax.tree.leaves(result, is_leaf=lambda x: x is None)
    if not leaves or all(leaf is None for leaf in leaves):
        raise TypeError(f"{name} gives None, and a JAX function gives arrays: return the tensors")
    return jax.tree.flatten(result)


def _plain(result: Any) -> Any:
    """Converts mappings and tuples of classes that JAX doesn't know (transformers' outputs, torch.return_types, Size)
    to dicts and tuples."""
    if isinstance(result, dict):
        return {key: _plain(value) for key, value in result.items()}
    if type(result) is list:
        return [_plain(value) for value in result]
    if isinstance(result, tuple) and not hasattr(result, "_fields"):  # JAX knows named tuples
        return tuple(_plain(value) for value in result)
    return result


def _result(leaf: Any, mode: Recording, name: str, index: int, narrow: bool) -> torch.Tensor:
    if isinstance(leaf, (bool, int, float, complex)):
        leaf = torch.as_tensor(leaf)
    if not isinstance(leaf, torch.Tensor):
        raise TypeError(f"{name} gives a {type(leaf).__name__} as result {index}, which is no tensor")
    tensor: torch.Tensor = mode.lift(leaf)
    if narrow:
        tensor = arrays.narrowed(tensor)
    arrays.jax_dtype(tensor.dtype, f"result {index} of {name}")
    return tensor.resolve_conj().resolve_neg()


def trace(
    fn: Callable[[list[torch.Tensor]], Any],
    structs: Sequence[Any],
    *,
    name: str,
    source: Callable[..., Any],
    keyed: bool,
    narrow: bool,
) -> Traced:
    """Args:
    fn: takes the tensors in a list, and may write to them.
    structs: shape and dtype of each argument.
    source: the user's function.
    keyed: whether there is one more argument, the words of a random key.
    narrow: whether 64-bit results become 32-bit ones if JAX has no others.

    Raises:
        CaptureError: the function can't be one program.
        TypeError: JAX can't represent a result.
    """
    with apart():
        return _trace(fn, structs, name, source, keyed, narrow)


def _trace(
    fn: Callable[[list[torch.Tensor]], Any],
    structs: Sequence[Any],
    name: str,
    source: Callable[..., Any],
    keyed: bool,
    narrow: bool,
) -> Traced:
    mode = Enclosed()
    scope = Scope(mode)
    given = [
        placeholder(arrays.torch_dtype(s.dtype, f"argument {i} of {name}"), s.shape) for i, s in enumerate(structs)
    ]
    words = [placeholder(torch.uint32, (2,))] if keyed else []
    with scope(), torch.enable_grad():
        try:
            with cumulative_momenta(find(source).modules):
                result = fn([tensor.clone() for tensor in given])
        except RuntimeError as error:
            raise _raised(error, name) from error
        leaves, tree = _leaves(result, name)
        outputs = [_result(leaf, mode, name, i, narrow) for i, leaf in enumerate(leaves)]
    mode.is_complete = True
    changed = mode.trace.changed()
    names = names_in(source) if mode.pieces else {}
    reported = [names.get(id(piece.real), "a tensor") for piece in mode.pieces]
    written = [each for each, is_changed in zip(reported, changed, strict=True) if is_changed]
    if written:
        raise CaptureError(
            f"{name} writes to what it closes over ({', '.join(written)}), and a JAX function changes nothing but its "
            "results: f, params, state = as_jax(module) gives a module's buffers back as new_state; else pass the "
            "tensor as an argument, and return it"
        )
    inputs = [*given, *words, *(piece.placeholder for piece in mode.pieces)]
    recorded = Recorded(
        name,
        [struct_of(tensor) for tensor in inputs],
        [struct_of(tensor) for tensor in outputs],
        lambda: (inputs, outputs),
        len(given) if keyed else None,
        scope,
    )
    try:
        recorded.text()  # raises for draws without a key, and for calls that a program of JAX's can't make
    except NotImplementedError as error:
        raise CaptureError(f"{name}: {error}. In JAX that is a jax.pure_callback: call one, beside torch") from error
    return Traced(recorded, [_constant(piece.real) for piece in mode.pieces], tree)


def _constant(real: torch.Tensor) -> jax.Array:
    with jax.ensure_compile_time_eval():
        return jax.numpy.asarray(arrays.to_numpy(real))


def _raised(error: RuntimeError, name: str) -> Exception:
    if isinstance(error, CaptureError):
        return type(error)(f"{name}: {error}{place_of(error, LIBRARIES)}{_as_jax_says(error)}")
    if "cannot have requires_grad True" in str(error):
        cure = "all floating-point arguments are differentiable under JAX; give it argument.detach()"
        return type(error)(f"{name}: {error} ({cure}){place_of(error, LIBRARIES)}")
    return type(error)(f"{name}: {error}") if type(error) in (RuntimeError, NotImplementedError) else error


def _as_jax_says(error: CaptureError) -> str:
    if "depends on data" in str(error):
        return as_jax_says("NonConcreteBooleanIndexError")
    if isinstance(error, ValueNeeded):
        return as_jax_says("TracerBoolConversionError" if "__bool__" in str(error) else "ConcretizationTypeError")
    return ""


def warn_of_constants(name: str, source: Callable[..., Any], traced: Traced, tensors: Sequence[torch.Tensor]) -> None:
    names = names_in(source)
    reported = [names.get(id(tensor), f"a tensor {list(tensor.shape)}") for tensor in tensors]
    nbytes = sum(tensor.nbytes for tensor in tensors)
    more = f" and {len(reported) - 6} more" if len(reported) > 6 else ""
    warnings.warn(
        f"as_jax({name}): {', '.join(reported[:6])}{more} ({nbytes:,} bytes) are closed over, so they are constants of "
        "the JAX program: later changes are not seen, and no gradient reaches them. Pass them as arguments; a "
        "module's are given by f, params, state = as_jax(module)",
        stacklevel=3,
    )
