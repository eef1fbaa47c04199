"""compile_step: forward, backward and optimizer as one program."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.capture.attributes import assign
from torch_pjrt.capture.beside import Beside
from torch_pjrt.capture.binding import bind, repeats, signature_of
from torch_pjrt.capture.capture import Capture, StateMade, capture
from torch_pjrt.capture.finding import Found, find
from torch_pjrt.capture.stand_ins import LIST
from torch_pjrt.capture.substitution import Hyperparameter, varying
from torch_pjrt.program.shown import new_watcher, watching
from torch_pjrt.program.subclasses import form_of, is_compound, leaves

# Limit of programs that are kept for calls with the same key (`CompiledStep.key`).
MOST_ENTRIES = 32
MANY = 8  # values of one attribute


def _ambient() -> tuple[Any, ...]:
    """Returns the thread's modes on which PyTorch's behavior in a call depends."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        *(torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) for device in ("cpu", "cuda", "pjrt")),
    )


def _taken_apart(structure: Any, tensors: Any) -> tuple[Any, list[torch.Tensor]]:
    """Returns the structure with the forms of the tensors, which may be subclasses, and their inner plain tensors."""
    return (structure, *map(form_of, tensors)), leaves(tensors)


class _Entry:
    """A program, and the conditions under which it is valid."""

    def __init__(self, captured: Capture, found: Found) -> None:
        self.captured, self.found = captured, found
        self.call = captured.call
        self.bound = (None, *captured.places)
        inputs = set(captured.inputs)
        pinned = set(captured.pinned)
        self.fixed: list[tuple[Any, Any, Any]] = []
        self.varying: list[tuple[Any, Any, int | None]] = []
        self.structure = [
            (
                o,
                o.param_groups,
                o.state,
                list(o.state),
                list(o.state.values()),
                [(group, len(group), group["params"], len(group["params"])) for group in o.param_groups],
            )
            for o in found.optimizers
        ]
        for o, optimizer in enumerate(found.optimizers):
            for g, group in enumerate(optimizer.param_groups):
                for key, value in group.items():
                    if key == "params" or isinstance(value, torch.Tensor):
                        continue
                    parts = [Hyperparameter(o, g, key)]
                    if isinstance(value, tuple):
                        parts = [Hyperparameter(o, g, key, e) for e in range(len(value))]
                    if not any(part in inputs for part in parts) or any(part in pinned for part in parts):
                        self.fixed.append((group, key, value))
        for each in captured.inputs:
            self.varying.append((found.optimizers[each.optimizer].param_groups[each.group], each.key, each.element))
        self.values = self.read_varying()
        self.vector = None if captured.numbers is None else captured.numbers.numpy()

    def read_varying(self) -> list[Any]:
        return [group[key] if element is None else group[key][element] for group, key, element in self.varying]

    def is_current(self) -> bool:
        """Whether the optimizers have the groups and state of the capture, and tied places still hold one tensor.

        The program finds state in the dict of its parameter, so these must be the same dicts. They are compared one by
        one, in C: ``==`` would compare the tensors in them.
        """
        for optimizer, groups, state, owners, dicts, known in self.structure:
            if optimizer.param_groups is not groups or len(groups) != len(known):
                return False
            if optimizer.state is not state or len(state) != len(dicts):
                return False
            if not all(map(is_, state.values(), dicts)) or not all(map(is_, state, owners)):
                return False
            for now, (group, entries, parameters, count) in zip(groups, known, strict=True):
                if now is not group or len(group) != entries:
                    return False
                if group["params"] is not parameters or len(parameters) != count:
                    return False
        return self.captured.ties.hold()

    def holds(self) -> bool:
        """Whether the optimizers are as they were at the capture, except for values that are inputs of the program."""
        if not self.is_current():
            return False
        for group, key, value in self.fixed:
            now = group[key]
            if now is not value and (type(now) is not type(value) or now != value):
                return False
        values = self.read_varying()
        if values != self.values:
            if not all(isinstance(value, float) for value in values):
                return False
            self.vector[:] = values  # type: ignore[index]
            self.values = values
        return True


class CompiledStep:
    """The result of ``compile_step``. ``programs``: their number; ``captures``: how often the function was captured."""

    def __init__(
        self, fn: Callable[..., Any], modules: Any, optimizers: Any, keep_grads: bool, trace: bool = False
    ) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.watcher = new_watcher() if trace else None
        self.fn, self.keep_grads = fn, keep_grads
        self.named = (tuple(modules), tuple(optimizers))
        self.entries: dict[Any, list[_Entry]] = {}
        self.modules: list[torch.nn.Module] = []
        self.beside: tuple[Beside, ...] = ()
        self.inputs = {"lr"}  # names of hyperparameters that are inputs
        self.seen: dict[Any, Any] = {}
        self.captures = 0
        self.changes: Counter[Any] = Counter()  # captures for other values, by attribute
        self.takes_subclasses = False

    @property
    def programs(self) -> int:
        """The number of programs that are kept."""
        return len({id(e.captured.program) for entries in self.entries.values() for e in entries})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _C.tracing():  # another capture is at work, of which this call is a part
            return self.fn(*args, **kwargs)
        if not kwargs and all(isinstance(a, torch.Tensor) for a in args):
            structure: Any = len(args)
            tensors: Any = args
        else:
            leaves, spec = pytree.tree_flatten((args, kwargs))
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            structure = (spec, *((type(x), x) for x in leaves if not isinstance(x, torch.Tensor)))
        if len(same := {id(tensor): tensor for tensor in tensors}) < len(tensors):
            structure, tensors = (structure, repeats(tensors)), tuple(same.values())
        if self.takes_subclasses:
            structure, tensors = _taken_apart(structure, tensors)
        for each in self.beside:
            each.begin()
        key = self.key(structure)
        for entry in self.entries.get(key, ()):
            if entry.holds():
                results = entry.call(entry.bound, *tensors)
                if results is not NotImplemented:
                    return self.hand_over(entry, results)
        return self.capture(structure, tensors, args, kwargs)

    def key(self, structure: Any) -> tuple[Any, ...]:
        """Returns the key by which the entries of a call are looked up."""
        modes = [module.training for module in self.modules]
        return (structure, _ambient(), *modes, *(value for each in self.beside for value in each.settings()))

    def hand_over(self, entry: _Entry, results: Any) -> Any:
        captured = entry.captured
        for each in entry.found.beside:
            each.end()
        assign(captured.assigned)
        if captured.form != LIST:
            return results
        return captured.hand_over(results)

    def capture(self, structure: Any, tensors: Any, args: Any, kwargs: Any) -> Any:
        if not self.takes_subclasses and any(map(is_compound, tensors)):
            self.takes_subclasses = True
            structure, tensors = _taken_apart(structure, tensors)
        if _C.has_no_values(tuple(tensors)):  # under a FakeTensorMode the function runs as in eager
            return self.fn(*args, **kwargs)
        found = find(self.fn, *self.named, bind(signature_of(self.fn), args, kwargs).arguments)
        self.note_varying(found)
        self.captures += 1
        inputs = varying(found, self.inputs)
        try:
            with watching(self.watcher):
                captured = capture(self.fn, args, kwargs, found, inputs, self.keep_grads, torch.is_grad_enabled())
        except StateMade:
            return self.fn(*args, **kwargs)
        entry = _Entry(captured, found)
        if new := [module for module in found.modules if module not in self.modules]:
            self.modules = [*self.modules, *new]  # others were arguments of another call
            self.entries.clear()
        self.beside = found.beside
        key = self.key(structure)
        entries = self.entries.setdefault(key, [])
        self.warn_of_changes(entries)
        entries[:] = [entry, *(e for e in entries if e.is_current())][:MOST_ENTRIES]
        results = entry.call(entry.bound, *tensors)
        if results is NotImplemented:
            raise RuntimeError("a captured function does not fit the call that it was captured for")
        return self.hand_over(entry, results)

    def warn_of_changes(self, entries: list[_Entry]) -> None:
        """Warns of an attribute that makes many programs. ``entries``: those that don't fit the call."""
        for name in {entry.captured.changed() for entry in entries[:1]} - {None}:
            self.changes[name] += 1
            if self.changes[name] == MANY:
                warnings.warn(
                    f"the captured function reads {name}, which has had {MANY + 1} values: each is a program of its "
                    "own. Keep it in a tensor, or pass it as one",
                    stacklevel=4,
                )

    def afresh(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a step by a program that is captured for it, to be traced.

        Runs two steps if the optimizers have no state yet, because their first step makes it without a program."""
        step = CompiledStep(self.fn, *self.named, self.keep_grads)
        result = step(*args, **kwargs)
        return result if step.programs else step(*args, **kwargs)

    def note_varying(self, found: Found) -> None:
        """Makes hyperparameters inputs whose values have changed since they were last seen."""
        for o, optimizer in enumerate(found.optimizers):
            for g, group in enumerate(optimizer.param_groups):
                for key, value in group.items():
                    if key == "params" or isinstance(value, (bool, str, torch.Tensor)):
                        continue
                    before = self.seen.setdefault((o, g, key), value)
                    if before != value:
                        self.inputs.add(key)


def compile_step(
    step_fn: Callable[..., Any],
    *,
    modules: Iterable[torch.nn.Module] = (),
    optimizers: Iterable[torch.optim.Optimizer] = (),
    keep_grads: bool = False,
    trace: bool = False,
) -> CompiledStep:
    """Compiles a whole training step into one program: forward, backward, clipping, optimizer, and all other PyTorch
    calls of ``step_fn``.

    Parameters, buffers and optimizer state are updated in place, on the CPU, on ``"pjrt"`` or, with a plugin for it, on
    CUDA. Example::

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        step = torch_pjrt.compile_step(step)
        for x, y in batches:
            loss = step(x, y)
            scheduler.step()

    ``step_fn`` runs as Python when it is captured, up to four times (with and without gradients, for instance). Later
    calls run the program only. Functions that it calls may be compiled by ``torch.compile``. An optimizer without state
    makes it in its first step, so that step runs in eager mode. A call with new shapes, dtypes, devices or constants,
    with one tensor for other arguments, or in another mode (``train()``/``eval()``, grad mode, autocast, the default
    dtype, ``requires_grad``), is captured again.
    Hyperparameters may be changed at any time: a learning rate is an input of the program, and other hyperparameters
    become inputs when their value changes.

    After a call, a parameter's ``.grad`` is None if the step updated the parameter and did not use gradients of earlier
    calls. Gradients that accumulate over calls, and gradients of parameters that ``step_fn`` leaves to another
    optimizer, are stored as in eager mode.

    Args:
        step_fn: takes tensors of any shape and dtype, and hashable values, in any structure of lists, tuples and dicts;
            returns such a structure of tensors. Results are detached.
        modules: modules that can't be found automatically. Modules are found in ``step_fn``'s closure, its defaults,
            the globals that it names, and objects that hold them.
        optimizers: optimizers that can't be found automatically, likewise.
        keep_grads: if True, each parameter's ``.grad`` is set after a call, as in eager mode.
        trace: if True, ``torch_pjrt.last_traces(step)`` returns the stages of each program.

    Raises:
        TypeError: ``step_fn`` is not callable.
        torch_pjrt.CaptureError: in a call, the step can't be one program: it reads a value (``loss.item()``), its
            tensors are on several devices, or it changes an optimizer's param_groups or a module's attributes.
    """
    if not callable(step_fn):
        raise TypeError(f"compile_step takes a function, not {type(step_fn).__name__}")
    return CompiledStep(step_fn, modules, optimizers, keep_grads, trace)
