"""Replaces the tensors of modules and optimizers by placeholders during a capture."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch

from torch_pjrt.capture.finding import Found, names_of
from torch_pjrt.capture.recording import Recording, State
from torch_pjrt.capture.scalars import Number
from torch_pjrt.errors import CaptureError


@dataclass(frozen=True)
class Hyperparameter:
    """A scalar in ``optimizer.param_groups[group][key]``, or an element of a tuple there."""

    optimizer: int
    group: int
    key: str
    element: int | None = None

    def read(self, found: Found) -> Any:
        value = found.optimizers[self.optimizer].param_groups[self.group][self.key]
        return value if self.element is None else value[self.element]


def varying(found: Found, names: set[str]) -> list[Hyperparameter]:
    """Returns the hyperparameters that are inputs of the program: floats under one of ``names``."""
    result = []
    for o, optimizer in enumerate(found.optimizers):
        for g, group in enumerate(optimizer.param_groups):
            for key in sorted(names & group.keys()):
                value = group[key]
                if isinstance(value, float):
                    result.append(Hyperparameter(o, g, key))
                elif isinstance(value, tuple):
                    result += [Hyperparameter(o, g, key, e) for e, v in enumerate(value) if isinstance(v, float)]
    return result


# Lists of parameters of a recurrent module, which it rebuilds when it finds them replaced.
KEPT_BY_RNNS = ("_flat_weights", "_flat_weight_refs")


class Substitution:
    """A context manager that puts placeholders in, and restores the tensors even if an error occurs."""

    def __init__(self, found: Found, recording: Recording, numbers: dict[Hyperparameter, Number]) -> None:
        self.found, self.recording, self.numbers = found, recording, numbers
        self.entries: list[tuple[dict[str, Any], dict[str, Any]]] = []  # a module's dict, with a copy of it
        self.attributes: list[tuple[torch.nn.Module, str, dict[str, Any]]] = []
        self.pieces_of: list[tuple[dict[Any, Any], Any, State, str]] = []  # the places of placeholders
        self.optimizers: list[tuple[torch.optim.Optimizer, list[Any], Any]] = []
        self.states: list[tuple[torch.optim.Optimizer, dict[Any, Any], dict[Any, Any]]] = []
        self.groups: list[tuple[torch.optim.Optimizer, list[dict[str, Any]], list[dict[str, Any]]]] = []
        self.tensors_in_groups: list[str] = []  # the names of hyperparameters that are tensors
        self.state_made = False

    def __enter__(self) -> Substitution:
        try:
            names = names_of(self.found.modules)
            for module in self.found.modules:
                self._enter_module(module, names[id(module)])
            for index, optimizer in enumerate(self.found.optimizers):
                self._enter_optimizer(index, optimizer)
            for each in self.found.beside:
                each.enter(self._stand_in)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for entries, before in self.entries:
            entries.clear()
            entries.update(before)
        for optimizer, groups, state in self.optimizers:
            optimizer.param_groups, optimizer.state = groups, state
        for each in self.found.beside:
            each.exit()

    def _stand_in(self, parameter: torch.Tensor) -> torch.Tensor | None:
        known = self.recording.by_id.get(id(parameter))
        return None if known is None else known.placeholder

    def _place(self, entries: dict[Any, Any], key: Any, real: torch.Tensor, name: str, container: Any) -> None:
        placeholder = self.recording.piece(real, name, container, key)
        entries[key] = placeholder
        self.pieces_of.append((entries, key, self.recording.by_id[id(real)], name))

    def _enter_module(self, module: torch.nn.Module, name: str) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            where = f"'{name}', " if name else ""
            raise CaptureError(
                f"{where}a module of torch.jit.script or trace, can't be part of a program: its parameters are not "
                "Python's. Give the module that it was made of"
            )
        for entries in (module._parameters, module._buffers):
            self.entries.append((entries, dict(entries)))
            for key, value in list(entries.items()):
                if value is not None:
                    self._place(entries, key, value, f"{name}.{key}" if name else key, entries)
        self.attributes.append((module, name or type(module).__name__, dict(module.__dict__)))

    def _enter_optimizer(self, index: int, optimizer: torch.optim.Optimizer) -> None:
        name = type(optimizer).__name__
        originals, state = optimizer.param_groups, optimizer.state
        self.optimizers.append((optimizer, originals, state))
        groups = []
        for g, original in enumerate(originals):
            group = dict(original)
            parameters: list[Any] = []
            for i, parameter in enumerate(original["params"]):
                place = (original["params"], i)
                parameters.append(self.recording.piece(parameter, f"{name}'s parameter {i} of group {g}", *place))
            group["params"] = parameters
            for key, value in original.items():
                if key == "params":
                    continue
                if isinstance(value, torch.Tensor):
                    described = f"{name}.param_groups[{g}]['{key}']"
                    self._place(group, key, value, described, original)
                    if key != "initial_lr":  # only a scheduler uses it
                        self.tensors_in_groups.append(described)
                elif key == "fused" and value:
                    group[key] = False  # results are equal, and a program needs no fused kernel
                elif key == "foreach" and value is None:
                    group[key] = False  # results are equal, and step counts can be seen to advance together
                elif isinstance(value, tuple):
                    elements = (self.numbers.get(Hyperparameter(index, g, key, e), v) for e, v in enumerate(value))
                    group[key] = tuple(elements)
                else:
                    group[key] = self.numbers.get(Hyperparameter(index, g, key), value)
            groups.append(group)
        self.groups.append((optimizer, groups, [dict(group) for group in groups]))
        optimizer.param_groups = groups
        optimizer.state = defaultdict(dict)
        for owner, values in state.items():
            if not isinstance(values, dict):
                raise CaptureError(f"{name} keeps state that is no dict of tensors ({type(values).__name__})")
            known = self.recording.by_id.get(id(owner))
            key = self.recording.lift(owner) if known is None else known.placeholder
            entries = dict(values)
            for k, value in values.items():
                if isinstance(value, torch.Tensor):
                    self.recording.count(value, f"{name}'s state '{k}'", values, k)
                    self._place(entries, k, value, f"{name}'s state '{k}'", values)
                elif isinstance(value, (list, dict)):
                    raise CaptureError(f"{name} keeps a {type(value).__name__} in its state '{k}', not a tensor")
            optimizer.state[key] = entries
            self.states.append((optimizer, entries, dict(entries)))

    def settle(self) -> None:
        """Called after the function ran, while recording continues: copies its new tensors to the old places, and
        raises for changes that can't be kept. Sets ``state_made`` if an optimizer made its state in this step."""
        for each in self.found.beside:
            each.settle()
        for module, name, before in self.attributes:
            if isinstance(module, torch.nn.RNNBase):
                module.__dict__.update({key: before[key] for key in KEPT_BY_RNNS})
            for key, value in module.__dict__.items():
                if isinstance(value, torch.Tensor) and value is not before.get(key):
                    module.__dict__.clear()
                    module.__dict__.update(before)
                    raise CaptureError(
                        f"the captured function sets attribute '{key}' of module '{name}' to a tensor: make it a "
                        "buffer (register_buffer) that is updated in place, or return the tensor"
                    )
        for optimizer, groups, before_groups in self.groups:
            self._check_groups(optimizer, groups, before_groups)
        for optimizer, entries, before in self.states:
            self._check_state(optimizer, entries, before)
        for optimizer, _, _ in self.optimizers:
            known = {id(entries) for each, entries, _ in self.states if each is optimizer}
            self.state_made |= any(values and id(values) not in known for values in optimizer.state.values())
        for entries, key, piece, name in self.pieces_of:
            value = entries.get(key)
            if value is piece.placeholder:
                continue
            fits = isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (
                piece.real.shape,
                piece.real.dtype,
            )
            if not fits or isinstance(piece.real, torch.nn.Parameter):
                raise CaptureError(f"the captured function replaces {name}; update it in place")
            with torch.no_grad():
                piece.placeholder.copy_(value)

    def _check_groups(self, optimizer: torch.optim.Optimizer, groups: Any, before: Any) -> None:
        for g, (now, then) in enumerate(zip(optimizer.param_groups, before, strict=False)):
            for key in now.keys() | then.keys():
                if now.get(key) is not then.get(key):
                    raise CaptureError(
                        f"the captured function changes {type(optimizer).__name__}.param_groups[{g}]['{key}'], which "
                        "would happen once, at the capture: call the scheduler outside, its numbers are read anew"
                    )
        if optimizer.param_groups is not groups or len(groups) != len(before):
            raise CaptureError(f"the captured function replaces {type(optimizer).__name__}.param_groups; do it outside")

    def _check_state(self, optimizer: torch.optim.Optimizer, entries: Any, before: Any) -> None:
        for key, value in entries.items():
            then = before.get(key)
            if value is then:
                continue
            if isinstance(value, torch.Tensor) and not isinstance(then, torch.Tensor):
                self.state_made = True
            elif not isinstance(value, torch.Tensor):
                raise CaptureError(
                    f"{type(optimizer).__name__} counts in Python: its state '{key}' goes from {then!r} to {value!r} "
                    "in each step. Keep it in a tensor"
                )
