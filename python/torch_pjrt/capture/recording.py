"""Runs a function on placeholders; the calls that PyTorch records become the program.

Every tensor that existed before the run is replaced by a placeholder, an argument of the program that each call reads
from the tensor's *place*. ``src/python/captured.cpp`` looks up places.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CellType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._device import _device_constructors

from torch_pjrt import _C
from torch_pjrt.capture.composed import COMPOSED, Elements, check_beside_values, check_call, of_known_values
from torch_pjrt.capture.kept import Made
from torch_pjrt.capture.scalars import Integer, Number, apply, check_integers, concrete, holds_number, read_numbers
from torch_pjrt.capture.stand_ins import CPU, check_leaf, check_sparse, known_value, like
from torch_pjrt.capture.ties import Place
from torch_pjrt.capture.wrapped import is_wrapped, rewrapped
from torch_pjrt.errors import CaptureError, ValueNeeded
from torch_pjrt.program.checks import assumed
from torch_pjrt.program.placeholders import DEVICE, has_memory_of, naming_device, on_device, reaches, reaches_beside
from torch_pjrt.program.subclasses import (
    form_of,
    is_compound,
    is_same,
    is_sparse,
    is_stand_in,
    leaves,
    leaves_of,
    with_leaves,
)
from torch_pjrt.program.tracing_scope import in_backward, tracing

T = torch.Tensor
READS = {
    T.__bool__, T.__float__, T.__int__, T.__index__, T.__complex__, T.__format__, T.__repr__, T.tolist, T.numpy,
    T.is_nonzero, T.__array__, T.__contains__,
}  # fmt: skip
ELSEWHERE = 'call it outside, or leave the function to torch.compile(backend="pjrt"), which is cut at such calls'
MOVES = {T.cpu: "cpu", T.cuda: "cuda"}
USED = "a tensor that the function uses"
ADDRESSES = {T.data_ptr, T.untyped_storage, T.storage, T.is_set_to}


@dataclass(eq=False)
class State:
    """One tensor of a function's state."""

    real: torch.Tensor
    name: str
    container: Any  # with `key`, the tensor's place
    key: Any
    placeholder: torch.Tensor
    gradient: torch.Tensor | None = None  # the placeholder of its .grad

    def now(self) -> torch.Tensor:
        """Returns the tensor that is at its place now."""
        found: torch.Tensor = self.container if self.key is None else self.container[self.key]
        return found.cell_contents if isinstance(found, CellType) else found


@dataclass(eq=False)
class Piece(State):
    """A plain tensor that is an argument of the program."""

    of: State | None = None  # set for (a part of) a .grad: the state that it belongs to


@dataclass(eq=False)
class Compound(State):
    """A tensor that consists of others: a subclass or a sparse tensor. Its leaves are pieces, read from the tensor."""

    inside: list[tuple[tuple[str, ...], torch.Tensor]] = field(default_factory=list)  # the placeholders of its leaves


class Before:
    """An old .grad, if it or its owner is a subclass. Each call reads its leaves, arguments, into ``cells``."""

    def __init__(self, owner: State, name: str, grad: torch.Tensor | None) -> None:
        self.owner, self.name, self.there = owner, name, grad is not None
        self.form = None if grad is None else form_of(grad)
        self.cells: list[torch.Tensor | None] = []
        self.placeholder: Any = None
        self.inside: list[tuple[tuple[str, ...], torch.Tensor]] = []

    def read(self) -> bool:
        """Reads the gradient; returns False if it is no longer as it was at the capture."""
        grad = self.owner.now().grad
        if grad is None or not self.there:
            return grad is None and not self.there
        if form_of(grad) != self.form:
            return False
        self.cells[:] = leaves([grad])
        return True

    def let_go(self) -> None:
        self.cells[:] = [None] * len(self.cells)


@dataclass
class Follower:
    """A scalar that equals a piece of state before and after each call, such as an optimizer's step count."""

    piece: Piece
    leader: int  # the index of that piece


def check_gradient(owner: State) -> None:
    if owner.real.grad is not None and owner.real.grad.requires_grad:
        raise CaptureError(f"{owner.name}.grad requires grad: double backward across calls is not captured")


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.untyped_storage().data_ptr(), tensor.shape, tensor.stride(), tensor.storage_offset()


def _copy_hooks(real: torch.Tensor, placeholder: torch.Tensor) -> None:
    for hook in (real._backward_hooks or {}).values():
        placeholder.register_hook(hook)
    for hook in (getattr(real, "_post_accumulate_grad_hooks", None) or {}).values():
        placeholder.register_post_accumulate_grad_hook(hook)


class Recording(TorchFunctionMode):
    """Sees each PyTorch function that is called while a function is captured.

    Args:
        grads: the parameters with a ``.grad`` at the start: ``"all"``, ``"none"``, or ``"actual"``, as they are now.
        follow: makes equal scalars of an optimizer's state one input of the program.
        device: the device that computes tensors of the CPU.
    """

    def __init__(self, grads: str, follow: bool, device: int | None = None) -> None:
        super().__init__()
        self.trace = _C.Trace(device)
        self.grads = grads
        self.home = CPU  # the function's device, which the program's device replaces
        self.arguments: list[torch.Tensor] = []
        self.follow = follow
        self.pieces: list[Piece] = []
        self.followers: list[Follower] = []
        self.leaders: dict[Any, int] = {}
        self.compounds: list[Compound] = []
        self.before: list[Before] = []
        self.given: list[Compound] = []  # the subclasses among the arguments
        self.by_id: dict[int, State] = {}
        self.ties: list[tuple[State, Place]] = []  # other places at which a piece was found
        self.held: set[int] = set()  # ids of pieces that the function holds itself as well
        self.memory: list[tuple[str, torch.Tensor, tuple[Any, ...]]] = []
        self.partial: dict[int, str] = {}  # views of wider memory, from their placeholders' memory to their names
        self.on_cpu: set[int] = set()  # the memory of placeholders for tensors of the CPU
        self.autocast: tuple[bool, torch.dtype] | None = None  # of the function's device, as the program's last had it
        self.constants: dict[int, torch.UntypedStorage] = {}  # tensors that calls make of values, anew in each call
        self.made = Made(self.trace.reached)
        _C.end_optimizer_step([])  # ends a step that raised: its state is data from before the capture
        self.reads_addresses = False
        self.places: dict[int, list[tuple[Any, Any]]] = {}  # containers and keys of tensors that the function finds
        self.elements = Elements()
        self.asserted: list[torch.Tensor] = []  # tensors that depend on all runtime assertions
        self.start = _C.newest_node_id()

    def argument(self, real: torch.Tensor, name: str) -> torch.Tensor:
        """Adds an argument of the call and returns its placeholder. Arguments come before all pieces of state."""
        if is_compound(real):
            check_leaf(real, name)
            check_sparse(real, name)
            given = with_leaves(real, lambda leaf, path: self.argument(leaf, ".".join((name, *path))))
            self.given.append(Compound(real, name, None, None, given, inside=list(leaves_of(given))))
            return given
        self.arguments.append(self.stand_in(real, name))
        self.made.add(self.arguments[-1:])
        return self.arguments[-1]

    def stand_in(self, real: torch.Tensor, name: str) -> torch.Tensor:
        """Returns a placeholder whose memory the function must not replace."""
        result = like(self.trace, real, name)
        self.memory.append((name, result, _memory(result)))
        if real.device.type == "cpu":
            self.on_cpu.add(result.untyped_storage().data_ptr())
        if not has_memory_of(result, real):
            self.partial[result.untyped_storage().data_ptr()] = name
        return result

    def piece(self, real: torch.Tensor, name: str, container: Any, key: Any) -> torch.Tensor:
        known = self.by_id.get(id(real))
        if known is not None:
            if known.container is not container or known.key != key:
                self.ties.append((known, Place(name, container, key)))
            return known.placeholder
        if is_compound(real):
            return self.compound(real, name, container, key)
        placeholder = self.stand_in(real, name)
        piece = Piece(real, name, container, key, placeholder)
        index = len(self.pieces)
        self.pieces.append(piece)
        self.by_id[id(real)] = piece
        if real.requires_grad:
            _copy_hooks(real, placeholder)
            grad = real.grad
            if grad is not None and is_compound(grad):
                self.gradient_before(piece)
            elif self.grads == "all" or (self.grads == "actual" and grad is not None):
                gradient = like(self.trace, real.detach() if grad is None else grad, f"{name}.grad")
                check_gradient(piece)
                piece.gradient = placeholder.grad = gradient
                self.pieces.append(Piece(gradient, f"{name}.grad", None, index, gradient, of=piece))
        return placeholder

    def compound(self, real: torch.Tensor, name: str, container: Any, key: Any) -> torch.Tensor:
        check_leaf(real, name)
        check_sparse(real, name)

        def part(leaf: torch.Tensor, path: tuple[str, ...]) -> torch.Tensor:
            place = ([leaf], 0) if is_sparse(real) else (leaf, None)  # nothing else holds the parts of a sparse tensor
            return self.piece(leaf, ".".join((name, *path)), *place)

        placeholder = with_leaves(real, part)
        made = Compound(real, name, container, key, placeholder, inside=list(leaves_of(placeholder)))
        self.compounds.append(made)
        self.by_id[id(real)] = made
        if real.requires_grad:
            _copy_hooks(real, placeholder)
            self.gradient_before(made)
        return placeholder

    def gradient_before(self, owner: State) -> None:
        grad = owner.real.grad
        if self.grads == "none" or (self.grads == "actual" and grad is None):
            return
        check_gradient(owner)
        name = f"{owner.name}.grad"
        grad = owner.real.detach() if grad is None else grad.detach()
        before = Before(owner, name, grad)

        def part(leaf: torch.Tensor, path: tuple[str, ...]) -> torch.Tensor:
            placeholder = like(self.trace, leaf, name)
            part_of = ".".join((name, *path))
            self.pieces.append(Piece(leaf, part_of, before.cells, len(before.cells), placeholder, of=owner))
            before.cells.append(None)
            return placeholder

        before.placeholder = owner.gradient = owner.placeholder.grad = with_leaves(grad, part)
        before.inside = list(leaves_of(before.placeholder))
        self.before.append(before)

    def settle_compounds(self) -> None:
        """Copies the inner tensors that an in-place operation gave a subclass into the ones that it had before."""
        kept: list[Compound | Before] = [*self.given, *self.compounds, *self.before]
        for each in kept:
            for (path, before), (_, now) in zip(each.inside, leaves_of(each.placeholder), strict=True):
                if is_same(now, before):
                    continue
                if (now.shape, now.dtype) != (before.shape, before.dtype):
                    raise CaptureError(
                        f"the captured function gives {'.'.join((each.name, *path))} another shape or dtype: it is "
                        "updated in place"
                    )
                with torch.no_grad():
                    before.copy_(now)

    def count(self, real: torch.Tensor, name: str, container: Any, key: Any) -> None:
        """Makes a scalar of an optimizer's state a follower of an equal one, if there is one."""
        if not self.follow or real.device.type != "cpu" or real.dim() > 0 or not real.is_floating_point():
            return
        if id(real) in self.by_id or real.requires_grad:
            return
        leader = self.leaders.setdefault((name, real.dtype, real.item()), len(self.pieces))
        if leader == len(self.pieces):
            return  # the first of equal scalars is a piece
        piece = Piece(real, name, container, key, self.trace.alias(self.position(leader)))
        self.by_id[id(real)] = piece
        self.followers.append(Follower(piece, leader))

    def check_memory(self) -> None:
        """Raises if the function replaced a tensor's memory: a program writes to the memory that it is given."""
        for name, placeholder, before in self.memory:
            if _memory(placeholder) != before:
                raise CaptureError(
                    f"the function gives {name} other memory or another shape (.data = ..., set_, resize_, t_ and the "
                    "like): write into it with copy_, or return the new tensor"
                )

    def check_borrowed(self) -> None:
        """Raises if a piece is written to that only this recording holds: the function made it, unseen by the recorder,
        and it would be a constant."""
        changed = self.trace.changed()
        for index, piece in enumerate(self.pieces):
            if piece.container is piece.real and changed[self.position(index)] and sys.getrefcount(piece.real) <= 3:
                raise CaptureError(
                    "the function writes into a tensor that it makes of memory of its own (torch.from_numpy, "
                    "torch.Tensor and the like), which only the capture would see: copy it first (torch.tensor(array), "
                    "or .clone())"
                )

    def followers_follow(self) -> bool:
        """Whether the function did the same to each follower as to its leader."""
        return all(_C.Trace.same(f.piece.placeholder, self.pieces[f.leader].placeholder) for f in self.followers)

    def was_there_before(self, tensor: torch.Tensor) -> bool:
        node = _C.node_id(tensor)
        if node is None or node > self.start:
            return False
        with torch._C.DisableTorchFunctionSubclass():
            return tensor.untyped_storage().data_ptr() not in self.constants

    def position(self, piece_index: int) -> int:
        return len(self.arguments) + piece_index

    def lift(self, value: Any) -> Any:
        """Returns ``value`` with placeholders instead of tensors that the function didn't make itself."""
        if isinstance(value, torch.Tensor):
            if is_stand_in(value):
                return value
            if is_wrapped(value):
                return rewrapped(value, self.lift)
            known = self.by_id.get(id(value))
            if known is not None:
                if known.container is not value and id(value) not in self.held:
                    self.held.add(id(value))
                    places = self.places.get(id(value)) or [((value,), 0)]
                    self.ties += [(known, Place(USED, *place)) for place in places]
                return known.placeholder
            if any(leaf.device.type != "pjrt" or self.was_there_before(leaf) for _, leaf in leaves_of(value)):
                first, *others = self.places.get(id(value)) or [(value, None)]
                placeholder = self.piece(value, USED, *first)
                self.ties += [(self.by_id[id(value)], Place(USED, *other)) for other in others]
                return placeholder
            self.elements.read(value)
            return value
        if isinstance(value, (list, tuple)):
            lifted = [self.lift(v) for v in value]
            if all(a is b for a, b in zip(lifted, value, strict=True)):
                return value
            return type(value)(*lifted) if hasattr(value, "_fields") else type(value)(lifted)
        if isinstance(value, dict):
            return {k: self.lift(v) for k, v in value.items()}
        return value

    def moved(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Replaces the function's device in a call's arguments, 'cpu' or 'cuda', by the program's."""

        makes = func in _device_constructors()  # may make tensors on 'cpu', such as step counts, which may be anywhere

        def means(device: torch.device) -> torch.device:
            if device.type == self.home.type or (makes and device.type == "cpu"):
                return DEVICE
            if device.type == "cpu":
                raise CaptureError("a tensor can't be moved to 'cpu' within a program: return it, and move it then")
            return device

        if func in MOVES:
            means(torch.device(MOVES[func]))
            return args, kwargs
        if func is T.to:
            args = naming_device(tuple(torch.device(a) if isinstance(a, str) else a for a in args), means)
        given = kwargs.get("device") or (CPU if makes else None)
        if given is not None:
            kwargs = {**kwargs, "device": means(torch.device(given))}
        return args, kwargs

    def arrived(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """Copies a result that was moved from the CPU to the function's device: it is a copy that may be written to."""
        if self.home.type == "cpu" or not isinstance(result, torch.Tensor) or is_compound(result):
            return result
        if result.untyped_storage().data_ptr() not in self.on_cpu:
            return result
        named = [a for a in (*args[1:], *kwargs.values()) if isinstance(a, (torch.device, torch.Tensor))]
        return result if func is T.to and not named else result.clone()

    def mirror_autocast(self) -> None:
        """Applies a change of ``torch.autocast`` for the function's device ("cpu", "cuda") to the program's.

        ``torch.autocast(x.device.type)`` changes the program's itself.
        """
        if self.home.type == "pjrt":
            return
        now = torch.is_autocast_enabled(self.home.type), torch.get_autocast_dtype(self.home.type)
        if now != self.autocast:
            self.autocast = now
            torch.set_autocast_enabled("pjrt", now[0])
            torch.set_autocast_dtype("pjrt", now[1])

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _C.has_no_values(()):  # a subclass runs PyTorch's functions for the shape of a result
            return func(*args, **(kwargs or {}))
        self.mirror_autocast()
        self.reads_addresses |= func in ADDRESSES
        check_call(func, kwargs or {})
        given, out = args, (kwargs or {}).get("out")
        args, kwargs = self.lift(args), self.lift(kwargs or {})
        try:
            result = self.called(func, args, kwargs)
        finally:
            self.elements.write()
        # An in-place call returns the caller's own tensor, which `values[key] += x` stores where it was.
        places = zip((*args, kwargs.get("out")), (*given, out), strict=True)
        return next((own for lifted, own in places if lifted is result), result)

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = self.moved(func, args, kwargs)
        if func in MOVES and MOVES[func] == self.home.type:
            return self.arrived(func, args, kwargs, args[0])
        if func is T.item and args[0].is_floating_point():
            with torch.no_grad():
                return Number(args[0].detach().double().reshape(()))
        check_integers((args, kwargs))
        if func in READS or func is T.item:
            known = known_value(args[0])
            if known is not None:
                return func(known, *args[1:], **kwargs)
            if func is T.__bool__ and (truth := assumed(args[0])) is not None:
                return truth
            if func is T.item and not args[0].is_complex():
                with torch.no_grad():
                    return Integer(args[0].detach().reshape(()))
            raise ValueNeeded(
                f"Tensor.{func.__name__} needs the value of a tensor, and only a run of the program has it: return the "
                "tensor, and read it outside"
            )
        if reaches(func) and args[0].untyped_storage().data_ptr() in self.partial:
            name = self.partial[args[0].untyped_storage().data_ptr()]
            raise CaptureError(
                f"{reaches_beside(func.__name__, name)}: use slices and indices, or pass the tensor that the memory "
                "belongs to"
            )
        if func in (T.__getitem__, T.__setitem__) and (result := self.elements.at(*args)) is not NotImplemented:
            return result
        if func in COMPOSED and (result := COMPOSED[func](*args, **kwargs)) is not NotImplemented:
            return result
        args, kwargs = read_numbers(func.__name__, args, kwargs)
        if holds_number((args, kwargs)):
            result = apply(func.__name__, args, kwargs)
            if result is not NotImplemented:
                return result
            args, kwargs = concrete(args), concrete(kwargs)
        try:
            result = func(*args, **kwargs)
        except (AssertionError, NotImplementedError) as error:  # Meta kernels of PyTorch assert
            if (result := of_known_values(func, args, kwargs)) is NotImplemented:
                check_beside_values(func, args, kwargs)
                if isinstance(error, AssertionError):
                    raise
                name = getattr(func, "__name__", str(func))
                is_sized = "depends on data" in str(error)
                kind = ValueNeeded if is_sized or "value is needed" in str(error) else CaptureError
                own = "keep all elements and choose by torch.where or weights, " if is_sized else ""
                raise kind(f"{name} can't be part of a program: {error}: {own}{ELSEWHERE}") from error
        if args and all(isinstance(each, (int, float, complex)) for each in args):  # torch.div(7, 2) is a tensor
            result = on_device(result)
        if func is T.to or func is getattr(T, "pjrt", None):
            result = self.arrived(func, args, kwargs, result)
        found = pytree.tree_leaves(result)
        results = leaves(leaf for leaf in found if isinstance(leaf, torch.Tensor) and not is_wrapped(leaf))
        results = [leaf for leaf in results if leaf.device.type == "pjrt"]
        for leaf in results:
            if _C.node_id(leaf) == 0:  # data, such as the result of torch.tensor([...]) and its clones
                memory = leaf.untyped_storage()
                self.constants.setdefault(memory.data_ptr(), memory)
        self.made.add(results)
        return result


@contextmanager
def recording(mode: Recording | None = None) -> Iterator[None]:
    """Records calls: backward runs in this thread, as part of the capture, and compiled functions run uncompiled."""
    backward = in_backward.set(mode)
    autocast = torch.is_autocast_enabled("pjrt"), torch.get_autocast_dtype("pjrt")
    follows_cpu = _C.follow_cpus_autocast(False)
    uncompiled = torch.compiler.set_stance("force_eager")
    try:
        with uncompiled, tracing(), torch.autograd.set_multithreading_enabled(False):
            yield
    except NotImplementedError as error:
        raise CaptureError(f"the function can't be one program: {error}") from error
    finally:
        in_backward.reset(backward)
        torch.set_autocast_enabled("pjrt", autocast[0])
        torch.set_autocast_dtype("pjrt", autocast[1])
        _C.follow_cpus_autocast(follows_cpu)
