"""What becomes of the ``.grad`` of each tensor of a function's state: whether it counts what was there before, and
whether it is there after a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_pjrt.capture.recording import Before, Compound, Recording, State
from torch_pjrt.program.subclasses import Template, is_compound, leaves


@dataclass
class Plan:
    """Whose ``.grad`` is let go of after a call, given back by it, and must not be there before it."""

    cleared: list[State] = field(default_factory=list)
    kept: list[State] = field(default_factory=list)
    absent: list[State] = field(default_factory=list)

    def placeholders(self) -> list[torch.Tensor]:
        return leaves(owner.placeholder.grad for owner in self.kept)

    def readers(self, mode: Recording, used: Callable[[torch.Tensor], bool]) -> list[Before]:
        """Of what C++ can't read from a place."""
        found = [before for before in mode.before if any(map(used, parts(before)))]
        return [*found, *(Before(owner, "", None) for owner in self.absent if isinstance(owner, Compound))]

    def giving(self) -> list[Giving]:
        grads = [(owner, owner.placeholder.grad) for owner in self.kept]
        return [
            Giving(owner, Template(grad) if is_compound(grad) else None, len(leaves([grad]))) for owner, grad in grads
        ]


@dataclass
class Giving:
    """A ``.grad`` that is among the results of each call: how many of them it is made of, and how."""

    owner: State
    template: Template | None
    count: int

    def give(self, results: Sequence[torch.Tensor]) -> None:
        self.owner.now().grad = results[0] if self.template is None else self.template.build(iter(results))


def parts(of: Compound | Before) -> list[torch.Tensor]:
    return [leaf for _, leaf in of.inside]


def owners(mode: Recording) -> Iterator[State]:
    yield from (piece for piece in mode.pieces if piece.of is None)
    yield from mode.compounds


class Look:
    """At what one run of the function did."""

    def __init__(self, mode: Recording) -> None:
        self.mode = mode
        self.changed = mode.trace.changed()
        self.position = {id(piece.placeholder): mode.position(i) for i, piece in enumerate(mode.pieces)}

        self.before = {before.owner: before for before in mode.before}

    def is_written(self, inside: Iterable[torch.Tensor]) -> bool:
        return any(self.changed[self.position[id(leaf)]] for leaf in inside)

    def is_updated(self, owner: State) -> bool:
        return self.is_written(parts(owner) if isinstance(owner, Compound) else [owner.placeholder])

    def is_touched(self, owner: State) -> bool:
        """Of one that had a ``.grad``: is it another now, or written to?"""
        if owner.gradient is None or owner.placeholder.grad is not owner.gradient:
            return True
        return self.is_written(parts(self.before[owner]) if owner in self.before else [owner.gradient])

    def depends(self, results: Sequence[Any]) -> bool:
        """Does anything that stays after a call depend on what a ``.grad`` was before it?"""
        mode = self.mode
        targets = [piece.placeholder for piece in mode.pieces if piece.of is None] + mode.arguments
        targets += [x for x in results if isinstance(x, torch.Tensor)]
        for owner in owners(mode):
            grad = owner.placeholder.grad
            if owner.gradient is not None and grad is not None and self.is_touched(owner):
                targets += leaves([grad])
        reached = mode.trace.reached(targets)
        return any(reached[mode.position(i)] for i, piece in enumerate(mode.pieces) if piece.of is not None)

    def plan(self, keep: bool) -> Plan:
        """For a run whose gradients were there or not as they are now."""
        plan = Plan()
        for owner in owners(self.mode):
            if not owner.real.requires_grad:
                continue
            grad = owner.placeholder.grad
            if grad is None:
                plan.cleared.append(owner)
            elif grad is not owner.gradient:
                # Where the function did not update the parameter itself, its gradient is what it was called for.
                (plan.kept if keep or not self.is_updated(owner) else plan.cleared).append(owner)
        return plan

    def without_gradient(self) -> list[State]:
        return [owner for owner in owners(self.mode) if owner.real.requires_grad and owner.gradient is None]

    def untouched(self) -> set[int]:
        """The ids of tensors whose ``.grad`` is what it was."""
        had = [owner for owner in owners(self.mode) if owner.gradient is not None]
        return {id(owner.real) for owner in had if not self.is_touched(owner)}

    def writes_gradients(self) -> bool:
        return any(self.changed[self.mode.position(i)] for i, p in enumerate(self.mode.pieces) if p.of is not None)
