"""jit: compiles a function for arguments of known shapes, to be called from C++."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from torch_pjrt import _C
from torch_pjrt.capture.attributes import Assigned, assign
from torch_pjrt.capture.beside import Beside
from torch_pjrt.capture.binding import Positional, repeats
from torch_pjrt.capture.capture import Capture, capture, capturing
from torch_pjrt.capture.finding import find
from torch_pjrt.capture.stand_ins import LIST
from torch_pjrt.capture.ties import Ties
from torch_pjrt.program.shown import new_watcher, watching
from torch_pjrt.program.subclasses import differences, form_of, is_compound, leaves


class Jitted(functools.partial):  # type: ignore[type-arg]
    """The result of ``jit``: a C++ function bound to the places of its state."""

    program: Any


def _describe(tensor: Any) -> str:
    if not isinstance(tensor, torch.Tensor):
        return f"a {type(tensor).__name__}"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} on '{tensor.device}'"


class _Examples:
    """Shapes, dtypes, devices and strides of examples."""

    def __init__(self, examples: Sequence[torch.Tensor], name: str) -> None:
        self.name = name
        self.forms = [(t.shape, t.dtype, t.device, t.stride(), _describe(t)) for t in examples]

    def check(self, given: Sequence[Any]) -> None:
        """Raises TypeError if arguments are not like the examples, but for strides."""
        if len(given) != len(self.forms):
            raise TypeError(f"{self.name}: expected {len(self.forms)} arguments, got {len(given)}")
        for i, (each, (*form, _, described)) in enumerate(zip(given, self.forms, strict=True)):
            if not isinstance(each, torch.Tensor) or [each.shape, each.dtype, each.device] != form:
                raise TypeError(f"{self.name}: argument {i}: expected {described}, got {_describe(each)}")


class _Changed(Exception):
    """Raised for a call whose function reads attributes that have other values than at the capture."""


@contextmanager
def _ambient(autocast: Sequence[tuple[str, bool, torch.dtype]], dtype: torch.dtype) -> Iterator[None]:
    now, now_dtype = _autocast(), torch.get_default_dtype()
    try:
        _set_ambient(autocast, dtype)
        yield
    finally:
        _set_ambient(now, now_dtype)


def _autocast() -> list[tuple[str, bool, torch.dtype]]:
    kinds = "cpu", "cuda", "pjrt"
    return [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]


def _set_ambient(autocast: Sequence[tuple[str, bool, torch.dtype]], dtype: torch.dtype) -> None:
    torch.set_default_dtype(dtype)
    for kind, is_enabled, to in autocast:
        torch.set_autocast_enabled(kind, is_enabled)
        torch.set_autocast_dtype(kind, to)


class _Again:
    """Calls that are captured anew, under the modes of the first capture: those with one tensor for several arguments,
    because ``is`` may decide, and those with other values of attributes that the function reads."""

    def __init__(
        self,
        fn: Callable[..., Any],
        modules: Sequence[torch.nn.Module],
        expected: _Examples,
        positional: Positional,
    ) -> None:
        self.fn, self.expected, self.positional = fn, expected, positional
        self.modes = [(module, module.training) for module in modules]
        self.ambient = _autocast(), torch.get_default_dtype()
        self.known: dict[tuple[int, ...], list[Callable[..., Any]]] = {}  # by repeats()

    def __call__(self, args: Sequence[torch.Tensor]) -> Any:
        same = repeats(args)
        known, given = self.known.setdefault(same, []), sorted(set(same))
        tensors = [args[i] for i in given]
        for each in known:
            try:
                return each(*tensors)
            except _Changed:
                continue
        self.expected.check(leaves(args))
        at = [given.index(i) for i in same]
        now = [(module, module.training) for module, _ in self.modes]
        try:
            _set_modes(self.modes)
            with _ambient(*self.ambient):
                modules = [module for module, _ in self.modes]
                known.append(_compiled(functools.partial(_spread, self.fn, at), tensors, modules, is_first=False))
        finally:
            _set_modes(now)
        return known[-1](*tensors)


def _spread(fn: Callable[..., Any], at: Sequence[int], *tensors: torch.Tensor) -> Any:
    return fn(*(tensors[i] for i in at))


def _set_modes(modes: Sequence[tuple[torch.nn.Module, bool]]) -> None:
    for module, training in modes:
        module.training = training


def _may_share(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements of a tensor with these strides may share memory, as those of ``expand`` and ``unfold`` do."""
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


class _Otherwise:
    """The slow path of a call whose arguments don't match the examples: converts their layout or raises."""

    def __init__(self, captured: Capture, expected: _Examples, positional: Positional) -> None:
        self.captured, self.expected, self.positional, self.name = captured, expected, positional, positional.name
        self.again: _Again | None = None  # unless a caller has it, which takes the arguments or the results apart

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = self.positional(args, kwargs)
        if _C.has_no_values(args):
            raise TypeError(f"{self.name}: a fake tensor has no values to run a program on; call the function itself")
        self.expected.check(args)
        has_changed = self.captured.changed() is not None
        if has_changed and self.again is None:
            raise _Changed
        if self.again is not None and (has_changed or len(set(map(id, args))) < len(args)):
            return self.again(args)
        fitting = []
        for i, (given, (shape, dtype, device, strides, _)) in enumerate(zip(args, self.expected.forms, strict=True)):
            if given.stride() == strides and not given.is_conj() and not given.is_neg():
                fitting.append(given)
                continue
            if self.captured.needs_memory:
                raise TypeError(
                    f"{self.name}: argument {i}: expected strides {strides}, got {given.stride()}; the function "
                    "updates arguments in place or reads addresses, so no copy can stand for it"
                )
            if _may_share(shape, strides):
                raise TypeError(
                    f"{self.name}: argument {i}: expected strides {strides}, with which elements share memory, got "
                    f"{given.stride()}: give jit contiguous() examples"
                )
            with torch.no_grad():
                fitting.append(torch.empty_strided(shape, strides, dtype=dtype, device=device).copy_(given))
        result = self.captured.call((None, *self.captured.places), *fitting)
        if result is NotImplemented:
            with capturing:  # another thread may have been capturing the module
                result = self.captured.call((None, *self.captured.places), *fitting)
        if result is NotImplemented:
            raise RuntimeError(
                f"{self.name}: a parameter or buffer has another shape, dtype, device or layout than when the function "
                f"was captured, or is gone, or a submodule was replaced: call jit again; its state is: "
                f"{', '.join(self.captured.names)}"
            )
        return result


def jit(
    fn: Callable[..., Any],
    example_args: Sequence[torch.Tensor],
    *,
    modules: Iterable[torch.nn.Module] = (),
    trace: bool = False,
) -> Callable[..., Any]:
    """Compiles ``fn`` into one program for tensors like ``example_args``, which C++ calls without guards in Python.

    ``fn`` runs on placeholders, without gradients, and a second time if the first run doesn't determine everything.
    Its side effects outside PyTorch and its branches are fixed by that run: a later ``train()`` or ``eval()`` has no
    effect. Parameters and buffers are read in place at each call, so they may be written to, or replaced by others of
    the same shape. The first call with one tensor for several arguments is captured anew, and so is the first one after
    an attribute of a module that ``fn`` reads has changed.
    Example: ``fast = torch_pjrt.jit(model, (torch.empty(8, 128),)); y = fast(x)``.

    Args:
        fn: a module or a function; takes tensors and returns a tensor or a structure of tensors.
        example_args: tensors on the CPU, on ``"pjrt"`` or, with a plugin for it, on CUDA. Their shapes, dtypes, strides
            and devices are those of the program; their values are not used.
        modules: modules that can't be found automatically. Modules are found in ``fn`` itself, its closure, its
            defaults and the globals that it names.
        trace: if True, ``torch_pjrt.last_traces`` returns the stages of the program.

    Returns:
        A function of the same number of tensors, of the same shapes, dtypes and devices, by position (fastest) or by
        keyword. Arguments with other strides are copied first.

    Raises:
        torch_pjrt.CaptureError: ``fn`` can't be one program.
        TypeError: an example is not a tensor; in a call, an argument doesn't match its example.
        RuntimeError: in a call, a parameter or buffer no longer has the shape, dtype, device or layout of the capture.
    """
    examples = tuple(example_args)
    for i, example in enumerate(examples):
        if not isinstance(example, torch.Tensor):
            raise TypeError(f"jit takes tensors as example_args; number {i} is a {type(example).__name__}")
    examples = tuple(examples[i] if i == first else examples[i].detach() for i, first in enumerate(repeats(examples)))
    watcher = new_watcher() if trace else None
    with watching(watcher):
        call = _compiled(fn, examples, modules, is_first=True)
    call.afresh = lambda *args: jit(fn, args, modules=modules)(*args)  # captures again, for torch_pjrt.trace
    call.watcher = watcher
    return call


def _compiled(
    fn: Callable[..., Any], examples: Sequence[torch.Tensor], modules: Iterable[torch.nn.Module], is_first: bool
) -> Any:
    """Returns the program of a function. The first one of a function captures anew what it doesn't fit; others raise
    ``_Changed``."""
    with torch.no_grad():
        found = find(fn, modules)
        captured = capture(fn, tuple(examples), {}, found, with_grads=False)
    name = getattr(fn, "__name__", type(fn).__name__)
    positional, expected = Positional(fn, examples, name), _Examples(leaves(examples), name)
    otherwise = _Otherwise(captured, expected, positional)
    call: Any = Jitted(captured.call, (otherwise, *captured.places))
    call.program = captured.program
    if captured.ties:
        call = _tied(call, captured.ties, name)
    if found.beside or captured.assigned:
        call = _begun(call, found.beside, captured.assigned)
    if captured.form == LIST:
        call = _handed_over(call, captured)
    if any(map(is_compound, examples)):
        call = _taken_apart(call, examples, positional)
    if not is_first:
        return call
    again = _Again(fn, found.modules, expected, positional)
    if isinstance(call, Jitted):
        otherwise.again = again
        return call
    return _apart(call, again)


def _apart(call: Any, again: _Again) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        args = again.positional(args, kwargs)
        if len(set(map(id, args))) < len(args):
            return again(args)
        try:
            return call(*args)
        except _Changed:
            return again(args)

    run.program = call.program  # type: ignore[attr-defined]
    return run


def _begun(call: Any, beside: Sequence[Beside], assigned: Sequence[Assigned]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        for each in beside:
            each.begin()
        results = call(*args, **kwargs)
        for each in beside:
            each.end()
        assign(assigned)
        return results

    run.program = call.program  # type: ignore[attr-defined]
    return run


def _tied(call: Any, ties: Ties, name: str) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not ties.hold():
            raise RuntimeError(
                f"{name}: {ties.broken()} were one tensor when the function was captured, and are no longer: call jit "
                "again"
            )
        return call(*args, **kwargs)

    run.program = call.program  # type: ignore[attr-defined]
    return run


def _taken_apart(call: Any, examples: Sequence[torch.Tensor], positional: Positional) -> Callable[..., Any]:
    expected, name = [form_of(example) for example in examples], positional.name

    def run(*args: Any, **kwargs: Any) -> Any:
        args = positional(args, kwargs)
        if len(args) != len(expected):
            raise TypeError(f"{name}: expected {len(expected)} arguments, got {len(args)}")
        for i, (given, form) in enumerate(zip(args, expected, strict=True)):
            now = form_of(given)
            if form is not None and now is not None:  # requires_grad may differ
                now = dataclasses.replace(now, requires_grad=form.requires_grad)
            if now != form:
                raise TypeError(f"{name}: {'; '.join(differences(f'argument {i}', form, now))}: call jit again")
        return call(*leaves(args))

    run.program = call.program  # type: ignore[attr-defined]
    return run


def _handed_over(call: Any, captured: Capture) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return captured.hand_over(call(*args, **kwargs))

    run.program = call.program  # type: ignore[attr-defined]
    return run
