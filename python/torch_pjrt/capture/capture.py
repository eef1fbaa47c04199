"""capture(): compiles one call of a function into a program that reads state from where it is stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.capture.attributes import HOOKS, Assigned, Attributes, Read, Text, check_same, noting
from torch_pjrt.capture.composed import cumulative_momenta
from torch_pjrt.capture.effects import Effects
from torch_pjrt.capture.finding import Found
from torch_pjrt.capture.gradients import Giving, Look, Plan, owners
from torch_pjrt.capture.kept import mark
from torch_pjrt.capture.recording import Before, Compound, Piece, Recording, State, recording
from torch_pjrt.capture.scalars import Integer, Number
from torch_pjrt.capture.stand_ins import CPU, LIST, form_of_results, home_of
from torch_pjrt.capture.substitution import Hyperparameter, Substitution
from torch_pjrt.capture.ties import Place, Ties
from torch_pjrt.errors import CaptureError, ValueNeeded
from torch_pjrt.program.assertions import taken
from torch_pjrt.program.registered import is_registered, put_on
from torch_pjrt.program.residence import check_residence
from torch_pjrt.program.shown import Watch, text_of, watch_of
from torch_pjrt.program.stack import outside, place_of
from torch_pjrt.program.subclasses import Template, Watched, is_closed, is_compound, leaves, leaves_of

# Held while a function is captured, when placeholders replace the parameters of its modules: threads may share modules,
# and must not find each other's placeholders.
capturing = threading.RLock()


@dataclass
class Capture:
    """The result of a capture. ``bound`` and ``call`` are the arguments of src/python/captured.cpp."""

    program: Any
    call: Callable[..., Any]
    places: tuple[Any, ...]
    names: list[str]
    ties: Ties
    spec: pytree.TreeSpec
    form: int
    numbers: torch.Tensor | None  # the values of `inputs`
    inputs: list[Hyperparameter]
    pinned: list[Hyperparameter]  # hyperparameters whose values are constants of the program
    arguments: list[Any]  # (shape, dtype, strides) of each
    needs_memory: bool  # no copy can stand for an argument
    templates: list[Template | None] | None  # of each leaf of a result; None: all are plain
    giving: list[Giving]  # gradients that are the last results of the program
    cleared: list[Compound]  # state whose .grad becomes None
    assigned: list[Assigned]  # attributes that each call sets
    read: list[Read]  # attributes whose values are constants of the program
    hooks: list[tuple[dict[int, Any], tuple[Any, ...]]]  # of modules

    def changed(self) -> str | None:
        """Returns what the function reads of modules that is not as it was at the capture, if something is not."""
        if any(list(map(id, dict.values(each))) != list(map(id, then)) for each, then in self.hooks):
            return "the hooks of a module"
        return next(filter(None, (each.changed() for each in self.read)), None)

    def hand_over(self, results: list[Any]) -> Any:
        """Stores the gradients among the results, and returns the others in the function's structure."""
        for each in reversed(self.giving):
            first = len(results) - each.count
            each.give(results[first:])
            del results[first:]
        for owner in self.cleared:
            owner.now().grad = None
        if self.templates is not None:
            parts = iter(results)
            results = [next(parts) if t is None else t.build(parts) for t in self.templates]
        return pytree.tree_unflatten(results, self.spec)


class StateMade(Exception):
    """Raised when an optimizer made its state in the run: later steps are another program than this first one."""


@dataclass
class _Run:
    mode: Recording
    leaves: list[Any]
    spec: pytree.TreeSpec
    made: bool
    pinned: set[Hyperparameter]
    numbers: torch.Tensor | None
    home: torch.device
    templates: list[Template | None] | None
    watch: Watch | None
    numbers_named: list[tuple[str, torch.Tensor]]
    given: list[torch.Tensor]
    given_back: list[Any]


def _computing(args: Any, kwargs: Any, found: Found) -> int | None:
    """Returns the index of the pjrt device of the function's first tensor there, or None."""
    given = (leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
    held = (parameter for module in found.modules for parameter in module.parameters(recurse=False))
    led = (p for optimizer in found.optimizers for group in optimizer.param_groups for p in group["params"])
    on = (tensor.device for tensor in chain(given, held, led))
    return next((device.index for device in on if device.type == "pjrt"), None)


def _run(
    fn: Callable[..., Any], args: Any, kwargs: Any, found: Found, inputs: Sequence[Hyperparameter], grads: str
) -> _Run:
    device = _computing(args, kwargs, found)
    before = _C.current_device()
    try:
        _C.set_device(before if device is None else device)  # new tensors are made there
        run = _run_once(fn, args, kwargs, found, inputs, Recording(grads, follow=True, device=device))
        if run.mode.followers_follow():
            return run
        run.mode.made.let_go()
        return _run_once(fn, args, kwargs, found, inputs, Recording(grads, follow=False, device=device))
    finally:
        _C.set_device(before)


def _run_once(
    fn: Callable[..., Any], args: Any, kwargs: Any, found: Found, inputs: Sequence[Hyperparameter], mode: Recording
) -> _Run:
    reals = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    reals = list({id(real): real for real in reals}.values())  # one that is given twice is one argument
    given = [mode.argument(t, f"argument {i}") for i, t in enumerate(reals)]
    placeholders = {id(real): placeholder for real, placeholder in zip(reals, given, strict=True)}
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda real: placeholders[id(real)], (args, kwargs))
    mode.places = found.tensors
    found.effects.give(fn, args, kwargs)
    pinned: set[Hyperparameter] = set()
    values = None
    numbers: dict[Hyperparameter, Number] = {}
    watch = watch_of(getattr(fn, "__name__", type(fn).__name__))
    with ExitStack() as stack:
        if inputs:
            values = torch.tensor([each.read(found) for each in inputs], dtype=torch.float64)
        stack.enter_context(recording(mode))
        if values is not None:
            vector = mode.piece(values, "hyperparameters", values, None)
            with torch.no_grad():
                for i, each in enumerate(inputs):
                    pin = lambda each=each: pinned.add(each)  # noqa: E731
                    numbers[each] = Number(vector[i], each.read(found), pin)
        stack.enter_context(cumulative_momenta(found.modules))
        inside = stack.enter_context(Substitution(found, mode, numbers))
        if watch is not None:
            stack.enter_context(watch)
        owned = [(piece.name, piece.real) for piece in mode.pieces if piece.container is not None]
        named = [(f"argument {i}", leaf) for i, t in enumerate(reals) for _, leaf in leaves_of(t)]
        mode.home = home_of([(n, t) for n, t in owned if t is not values] + named)
        mode.mirror_autocast()
        _C.follow_cpus_autocast(mode.home.type == "cpu")
        try:
            with noting(found.read), mode:
                result = fn(*args, **kwargs)
        except ValueNeeded as error:
            names = " or ".join(inside.tensors_in_groups)
            cure = f". If it is that of {names}, make this a Python float: 'lr' is an input of the program then"
            raise ValueNeeded(f"{error}{cure if names else ''}{outside(error)}{place_of(error)}") from error
        except CaptureError as error:
            raise type(error)(f"{error}{place_of(error)}") from error
        mode.asserted = taken()
        mode.check_memory()
        mode.check_borrowed()
        for i, argument in enumerate(given):
            if argument.grad is not None:
                raise CaptureError(
                    f"the function leaves a gradient in argument {i}, which is not handed out: return it "
                    "(torch.autograd.grad)"
                )
        inside.settle()
        mode.settle_compounds()
        for leaf in pytree.tree_leaves(result):
            is_registered(type(leaf))  # a class of caches becomes a pytree node from here on
        given_back, spec = pytree.tree_flatten(result, is_leaf=lambda x: type(x) is torch.Size)
        given_back = [mode.lift(leaf) for leaf in given_back]
        for closed in filter(is_closed, given_back):
            raise CaptureError(
                f"the function returns a {type(closed).__name__}, which doesn't say what it is made of (it has no "
                "__tensor_flatten__): return what it is made of"
            )
        flat = [x for leaf in given_back for x in (leaves([leaf]) if is_compound(leaf) else [leaf])]
        templates = [Template(leaf) if is_compound(leaf) else None for leaf in given_back]
    if any(isinstance(leaf, (Number, Integer)) for leaf in flat):
        raise CaptureError("the function returns a number that only a run has (Tensor.item()): return the tensor")
    devices = [mode.home, *(piece.real.device for piece in mode.pieces if piece.container is not None)]
    home = next((device for device in devices if device.type != "cpu"), CPU)
    put_on(spec, str(home))
    made = inside.state_made
    named = [(each.key, number.tensor) for each, number in numbers.items()]
    put_together = templates if any(templates) else None
    return _Run(mode, flat, spec, made, pinned, values, home, put_together, watch, named, given, given_back)


def _with_grads(
    fn: Callable[..., Any], args: Any, kwargs: Any, found: Found, inputs: Sequence[Hyperparameter], keep: bool
) -> tuple[_Run, Plan]:
    """Runs ``fn`` as if every parameter had a .grad; if nothing depends on these, they are not state of the program."""
    run = _run(fn, args, kwargs, found, inputs, "all")
    if run.made:
        return run, Plan()
    look = Look(run.mode)
    if look.depends(run.leaves):
        run.mode.made.let_go()
        run = _run(fn, args, kwargs, found, inputs, "actual")
        look = Look(run.mode)
        plan = look.plan(keep=True)
        plan.absent = look.without_gradient()
        return run, plan
    if not look.writes_gradients():
        return run, look.plan(keep)
    # Gradients that are set to zero before they are used are handled as absent; others may be untouched.
    untouched = look.untouched()
    run.mode.made.let_go()
    run = _run(fn, args, kwargs, found, inputs, "none")
    plan = Look(run.mode).plan(keep)
    plan.cleared = [owner for owner in plan.cleared if id(owner.real) not in untouched]
    return run, plan


def capture(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    found: Found,
    inputs: Sequence[Hyperparameter] = (),
    keep_grads: bool = False,
    with_grads: bool = True,
) -> Capture:
    """Runs ``fn`` on placeholders and compiles the calls that it made.

    ``fn`` runs again if it uses gradients that existed before or sets them to zero, each time once more if the step
    counts of an optimizer differ, and again if it sets attributes of modules. Modules and optimizers are restored
    afterwards, except for attributes that each call sets. Other side effects of ``fn`` on Python objects stay, and
    happen in these runs only.

    Raises:
        CaptureError: ``fn`` can't be one program.
        StateMade: an optimizer made its state in this step.
    """
    if _C.has_no_values(()):
        raise CaptureError(
            "a function can't be captured where PyTorch traces (FakeTensorMode, make_fx): nothing has values"
        )
    with capturing:
        return _capture(fn, args, kwargs, found, inputs, keep_grads, with_grads)


@dataclass
class Recorded:
    """The recording of one run of a function, with the plan for its gradients. Call ``end()`` before it is compiled and
    ``let_go()`` afterwards."""

    run: _Run
    plan: Plan
    pieces: list[Piece]  # state that is an argument of the program
    position: dict[int, int]  # from the index of a piece of the run to its index in `pieces`
    gradients: list[torch.Tensor]  # the last results
    ties: Ties
    without_value: list[torch.Tensor]
    assigned: list[Assigned] = field(default_factory=list)  # of modules' attributes
    read: list[Read] = field(default_factory=list)

    def text(self) -> Text:
        state = [(piece.real, piece.container is not piece.real) for piece in self.pieces]
        return Text(self.run.mode.trace, [*self.run.leaves, *self.gradients, *self.run.mode.asserted], state)

    def end(self) -> None:
        for owner in owners(self.run.mode):
            owner.placeholder.grad = None

    def let_go(self) -> None:
        mark(self.without_value)


def record(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    found: Found,
    inputs: Sequence[Hyperparameter] = (),
    with_grads: bool = True,
) -> Recorded:
    """Records a call as ``capture`` does, and returns the recording for the caller to compile."""
    with capturing:
        recorded = _record(fn, args, kwargs, found, inputs, False, with_grads)
        recorded.end()
        return recorded


def _record(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    found: Found,
    inputs: Sequence[Hyperparameter],
    keep_grads: bool,
    with_grads: bool,
) -> Recorded:
    """Runs ``fn`` again where it sets attributes of modules, for what it does when they are set (attributes.py)."""
    before, found.effects, recorded = Attributes(found.modules), Effects(found), None
    try:
        recorded = _record_once(fn, args, kwargs, found, inputs, keep_grads, with_grads)
        if assigned := before.assigned():
            text = recorded.text()
            recorded.end()
            recorded.let_go()
            after = Attributes(found.modules)
            recorded = _record_once(fn, args, kwargs, found, inputs, keep_grads, with_grads)
            check_same(text, recorded.text(), assigned, after.assigned())
            recorded.assigned = assigned
        recorded.read = before.read(found.read, recorded.assigned)
        found.effects.check(recorded.run.leaves)
    except (CaptureError, NotImplementedError, StateMade):
        if recorded is not None:
            recorded.end()
            recorded.let_go()
        before.restore()
        found.effects.restore()
        raise
    return recorded


def _record_once(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    found: Found,
    inputs: Sequence[Hyperparameter],
    keep_grads: bool,
    with_grads: bool,
) -> Recorded:
    torch.pjrt.current_device()
    for each in found.beside:
        each.begin()
    if with_grads:
        run, plan = _with_grads(fn, args, kwargs, found, inputs, keep_grads)
    else:
        run, plan = _run(fn, args, kwargs, found, inputs, "none"), Plan()
    mode = run.mode
    if run.made:
        mode.made.let_go()
        raise StateMade
    gradients = plan.placeholders()
    without_value = mode.made.without_value()
    ties = _ties(run, with_grads)
    pieces, position = _drop_unused(run, plan, [*run.leaves, *gradients, *mode.asserted])
    return Recorded(run, plan, pieces, position, gradients, ties, without_value)


def _capture(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    found: Found,
    inputs: Sequence[Hyperparameter],
    keep_grads: bool,
    with_grads: bool,
) -> Capture:
    recorded = _record(fn, args, kwargs, found, inputs, keep_grads, with_grads)
    run, plan, mode = recorded.run, recorded.plan, recorded.run.mode
    pieces, position, gradients = recorded.pieces, recorded.position, recorded.gradients
    devices = [run.home for leaf in run.leaves if isinstance(leaf, torch.Tensor)]
    for owner in plan.kept:
        devices += [owner.real.device] * len(leaves([owner.placeholder.grad]))
    at = {piece: i for i, piece in enumerate(pieces)}
    stand = {id(piece.placeholder) for piece in pieces}
    before = plan.readers(mode, lambda leaf: id(leaf) in stand)
    check_residence(piece.real for piece in pieces)
    if run.watch is not None and run.watch.reported:
        _report(run, run.watch, plan, pieces, gradients)
    giving = plan.giving()
    recorded.end()
    try:
        program = mode.trace.compile([*run.leaves, *gradients], devices, run.home, mode.asserted)
    except NotImplementedError as error:
        raise CaptureError(str(error)) from error
    cleared = [owner for owner in plan.cleared if isinstance(owner, Compound)]
    plain = run.templates is None and not cleared and not gradients
    form = form_of_results(run.spec, run.leaves) if plain else LIST
    requires = [int(t.requires_grad) if with_grads else -1 for t in mode.arguments]
    requires += [int(p.real.requires_grad) if with_grads and p.container is not None else -1 for p in pieces]
    followers = [f for f in mode.followers if f.leader in position]
    submodules = [module._modules for module in found.modules if module._modules]
    parents = [*submodules, *(getattr(module, kind) for module in found.modules for kind in HOOKS)]
    captured = _C.Captured(
        program,
        requires,
        [at[owner] for owner in plan.absent if isinstance(owner, Piece)],
        [at[owner] for owner in plan.cleared if isinstance(owner, Piece)],
        [position[f.leader] for f in followers],
        form,
        [*(f"argument {i}" for i in range(len(mode.arguments))), *(piece.name for piece in pieces)],
        mode.reads_addresses,
        len(parents),
        len(recorded.read),
    )
    places: list[Any] = []
    for piece in pieces:
        places += (None, position[piece.key]) if piece.container is None else (piece.container, piece.key)
    for follower in followers:
        places += (follower.piece.container, follower.piece.key)
    held = [(each, tuple(dict.values(each))) for each in parents]  # in the order of C++ for an OrderedDict, too
    places += chain.from_iterable([*held, *((each.entries, each.values) for each in recorded.read)])
    arguments = [(tuple(t.shape), t.dtype, t.stride()) for t in mode.arguments]
    recorded.let_go()
    return Capture(
        program=program,
        call=_reading(captured.call, before) if before else captured.call,
        places=tuple(places),
        names=[piece.name for piece in pieces],
        ties=recorded.ties,
        spec=run.spec,
        form=form,
        numbers=run.numbers,
        inputs=list(inputs),
        pinned=sorted(run.pinned, key=repr),
        arguments=arguments,
        templates=run.templates,
        giving=giving,
        cleared=cleared,
        assigned=recorded.assigned,
        read=recorded.read,
        hooks=held[len(submodules) :],
        needs_memory=mode.reads_addresses or any(index < len(arguments) for index in program.mutated),
    )


def _reading(call: Callable[..., Any], before: Sequence[Before]) -> Callable[..., Any]:
    """Wraps a call so that gradients that C++ can't read are read first and passed as arguments."""

    def run(bound: Any, *tensors: Any) -> Any:
        try:
            return call(bound, *tensors) if all(each.read() for each in before) else NotImplemented
        finally:
            for each in before:
                each.let_go()

    return run


def _report(run: _Run, watch: Watch, plan: Plan, pieces: Sequence[Piece], gradients: Sequence[Any]) -> None:
    mode = run.mode
    inputs = [(f"argument {i}", each) for i, each in enumerate(run.given)]
    state: list[State] = [*mode.compounds, *mode.pieces]
    for piece in state:
        inputs.append((piece.name, piece.placeholder))
        if piece.gradient is not None:
            inputs.append((f"{piece.name}.grad", piece.gradient))
    inputs += run.numbers_named
    results = [(f"out {i}", leaf) for i, leaf in enumerate(run.given_back) if isinstance(leaf, torch.Tensor)]
    results += [(f"{owner.name}.grad", owner.placeholder.grad) for owner in plan.kept]
    placeholders = [*mode.arguments, *(p.placeholder for p in pieces)]
    watch.report(inputs, results, run.home, text_of(mode.trace, placeholders, [*run.leaves, *gradients]))


def _ties(run: _Run, with_grads: bool) -> Ties:
    """Returns the places that must hold the same tensors as at the capture.

    An optimizer that runs without gradients doesn't use parameters that don't change, so its place may hold another."""
    mode = run.mode
    changed = mode.trace.changed()
    indices = {id(piece): i for i, piece in enumerate(mode.pieces)}
    pairs = []
    for piece, other in mode.ties:
        matters = with_grads or not isinstance(other.container, list) or id(piece) not in indices
        if matters or changed[mode.position(indices[id(piece)])]:
            pairs.append((Place(piece.name, piece.container, piece.key), other))
    for compound in mode.compounds:
        watched = Watched(compound.real)
        pairs.append((Place(compound.name, (watched.form,), 0), Place("what it is made of", watched, None)))
        if compound.key is not None:
            pairs.append((Place(compound.name, compound.container, compound.key), Place("itself", (compound.real,), 0)))
    return Ties(pairs)


def _drop_unused(run: _Run, plan: Plan, results: Sequence[Any]) -> tuple[list[Piece], dict[int, int]]:
    """Returns the pieces of state that the program uses, and their positions among these by index in the run."""
    mode = run.mode
    changed = mode.trace.changed()
    first = len(mode.arguments)
    written = [piece.placeholder for i, piece in enumerate(mode.pieces) if changed[mode.position(i)]]
    reached = mode.trace.reached(written + [r for r in results if isinstance(r, torch.Tensor)])
    listed = {*plan.cleared, *plan.kept, *plan.absent}
    used = [i for i, piece in enumerate(mode.pieces) if changed[first + i] or reached[first + i] or piece in listed]
    owners = {mode.pieces[i].key for i in used if mode.pieces[i].container is None}
    used = sorted(owners.union(used))
    mode.trace.keep([True] * first + [i in set(used) for i in range(len(mode.pieces))])
    return [mode.pieces[i] for i in used], {i: at for at, i in enumerate(used)}


__all__ = ["Capture", "CaptureError", "StateMade", "capture"]
