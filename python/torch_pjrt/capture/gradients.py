"""Decides, for the ``.grad`` of each tensor of a function's state, whether its old value is an input of the program and
whether it is set after a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_pjrt.capture.recording import Before, Compound, Recording, State
from torch_pjrt.program.subclasses import Template, is_compound, leaves


@dataclass
class Plan:
    """State whose ``.grad`` is cleared after a call, is a result of the call, or must be absent before the call."""

    cleared: list[State] = field(default_factory=list)
    kept: list[State] = field(default_factory=list)
    absent: list[State] = field(default_factory=list)

    def placeholders(self) -> list[torch.Tensor]:
        return leaves(owner.placeholder.grad for owner in self.kept)

    def readers(self, mode: Recording, used: Callable[[torch.Tensor], bool]) -> list[Before]:
        """Returns the gradients that Python must read before a call, because C++ can't read them from a place."""
        found = [before for before in mode.before if any(map(used, parts(before)))]
        return [*found, *(Before(owner, "", None) for owner in self.absent if isinstance(owner, Compound))]

    def giving(self) -> list[Giving]:
        grads = [(owner, owner.placeholder.grad) for owner in self.kept]
        return [
            Giving(owner, Template(grad) if is_compound(grad) else None, len(leaves([grad]))) for owner, grad in grads
        ]


@dataclass
class Giving:
    """A ``.grad`` among the results of each call: its owner, its structure, and the number of its tensors."""

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
    """Analyzes the gradients after one run of the function."""

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
        """Whether the ``.grad`` that the owner had was replaced or written to."""
        if owner.gradient is None or owner.placeholder.grad is not owner.gradient:
            return True
        return self.is_written(parts(self.before[owner]) if owner in self.before else [owner.gradient])

    def depends(self, results: Sequence[Any]) -> bool:
        """Whether state, arguments or results after a call depend on a ``.grad`` before it."""
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
        """Returns the plan for a run that began with the gradients that exist now, or without any."""
        plan = Plan()
        for owner in owners(self.mode):
            if not owner.real.requires_grad:
                continue
            grad = owner.placeholder.grad
            if grad is None:
                plan.cleared.append(owner)
            elif grad is not owner.gradient:
                # A gradient is a result of the function if the function didn't update the parameter itself.
                (plan.kept if keep or not self.is_updated(owner) else plan.cleared).append(owner)
        return plan

    def without_gradient(self) -> list[State]:
        return [owner for owner in owners(self.mode) if owner.real.requires_grad and owner.gradient is None]

    def untouched(self) -> set[int]:
        """Returns the ids of the tensors whose ``.grad`` the run left unchanged."""
        had = [owner for owner in owners(self.mode) if owner.gradient is not None]
        return {id(owner.real) for owner in had if not self.is_touched(owner)}

    def writes_gradients(self) -> bool:
        return any(self.changed[self.mode.position(i)] for i, p in enumerate(self.mode.pieces) if p.of is not None)
