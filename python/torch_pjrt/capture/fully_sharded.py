"""Modules of ``fully_shard`` in captures.

FSDP2 gathers a module's parameters before the module runs, from memory that it holds outside of ``Module._parameters``,
into tensors that it makes once and keeps. A capture gathers from placeholders into tensors of its run, and restores
the state afterwards. Each call of a program therefore gathers anew, and a module is sharded before and after it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

from torch_pjrt.errors import CaptureError

# Settings of a group of parameters, made by methods of FSDPModule, on which its reductions depend.
SWITCHES = (
    "reduce_grads",
    "all_reduce_grads",
    "unshard_in_backward",
    "gradient_divide_factor",
    "force_sum_reduction_for_comms",
    "reduce_scatter_unused_params",
    "_all_reduce_hook",
    "_all_gather_comm",
    "_reduce_scatter_comm",
)


def _states(modules: Iterable[torch.nn.Module]) -> list[Any]:
    fsdp = sys.modules.get("torch.distributed.fsdp._fully_shard._fsdp_state")
    if fsdp is None:
        return []
    found = map(fsdp._get_module_fsdp_state, modules)
    return list({id(state): state for state in found if state is not None}.values())


def _groups(states: Iterable[Any]) -> list[Any]:
    """Returns the groups of parameters that are gathered together."""
    found: list[Any] = []
    for state in states:
        several = getattr(state, "_fsdp_param_groups", None)  # not in torch 2.11
        found += [state._fsdp_param_group] if several is None else several
    return [group for group in found if group is not None]


def _within(state: Any) -> list[Any]:
    return _states(each for module in state._modules for each in module.modules() if each not in state._modules)


def _set_up(states: list[Any]) -> None:
    """Initializes the outermost modules for good, as their first forward would."""
    within = {id(inner) for state in states for inner in _within(state)}
    for state in states:
        if state._is_root is None and id(state) not in within and len(state._modules) == 1:
            state._lazy_init()


def _contents(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict, set) else value


class _Kept:
    """A snapshot of an object's attributes, and of the contents of lists, dicts and sets among them."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.attributes = {name: (value, _contents(value)) for name, value in vars(owner).items()}

    def put_back(self) -> None:
        now = vars(self.owner)
        now.clear()
        for name, (value, contents) in self.attributes.items():
            if type(value) is list:
                value[:] = contents
            elif type(value) in (dict, set):
                value.clear()
                value.update(contents)
            now[name] = value


class FullySharded:
    """The parameters of a function's modules that FSDP2 shards."""

    def __init__(self, states: list[Any]) -> None:
        _set_up(states)
        self.states, self.groups = states, _groups(states)
        self.parameters = [parameter for group in self.groups for parameter in group.fsdp_params]
        self.kept: list[_Kept] = []  # set during a run
        self.copy_in: Any = None  # PyTorch's function, set during a run

    @classmethod
    def of(cls, modules: Iterable[torch.nn.Module]) -> FullySharded | None:
        states = _states(modules)
        return cls(states) if states else None

    def settings(self) -> tuple[Any, ...]:
        return tuple(getattr(group, name, None) for group in self.groups for name in SWITCHES)

    def begin(self) -> None:
        """Shards all groups: a forward without a backward leaves the outermost module's parameters gathered."""
        for group in self.groups:
            if not group.is_sharded:
                group.reshard()

    def enter(self, stand_in: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
        self._refuse_unreduced("before it")
        shared = {id(each): each for state in self.states for each in (state._state_ctx, state._comm_ctx)}
        self.kept = [_Kept(owner) for owner in (*self.states, *self.groups, *self.parameters, *shared.values())]
        for parameter in self.parameters:
            placeholder: Any = stand_in(parameter.sharded_param)
            if placeholder is None:
                raise CaptureError(
                    f"fully_shard gathers '{parameter._param_fqn or parameter._module_info.param_name}' with the "
                    "parameters of a captured function, which knows nothing of its module: name the whole model "
                    "(modules=[model])"
                )
            parameter.sharded_param = placeholder
            with torch.no_grad():
                parameter._sharded_param_data = placeholder._local_tensor.view(-1)
            parameter.all_gather_outputs = []
            vars(parameter).pop("_unsharded_param", None)
        self.copy_in = copy_in = torch.ops.fsdp.all_gather_copy_in

        def copy_in_first(inputs: Any, output: torch.Tensor, sizes: Any, numel: int, _rank: int) -> Any:
            """Copies a rank's shard to the first place of the gathered memory, whatever its rank: the program is one
            for all processes, and the collective overwrites that place."""
            return copy_in(inputs, output, sizes, numel, 0)

        copy_in_first.default = copy_in.default  # type: ignore[attr-defined]  # the recorder looks the operator up
        torch.ops.fsdp.all_gather_copy_in = copy_in_first

    def settle(self) -> None:
        self._refuse_unreduced("after it")
        self.begin()

    def exit(self) -> None:
        kept, self.kept = self.kept, []
        for each in kept:
            each.put_back()
        if self.copy_in is not None:
            torch.ops.fsdp.all_gather_copy_in, self.copy_in = self.copy_in, None

    def end(self) -> None:
        pass

    def _refuse_unreduced(self, when: str) -> None:
        for group in self.groups:
            gradients = [getattr(group, "_partial_reduce_output", None)]
            for parameter in group.fsdp_params:
                gathered = getattr(parameter, "_unsharded_param", None)
                gradients += [parameter.unsharded_accumulated_grad, None if gathered is None else gathered.grad]
            if any(gradient is not None for gradient in gradients):
                raise CaptureError(
                    f"a captured function, and gradients of '{group._module_fqn or 'the root module'}' that "
                    f"fully_shard has not reduced {when} (set_requires_gradient_sync(False)): have all micro-batches "
                    "of a step in one call"
                )
