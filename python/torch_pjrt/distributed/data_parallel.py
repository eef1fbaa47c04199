"""DistributedDataParallel in a captured step, whose reducer's hooks placeholders lack.

Gradients are reduced at the end of backward, those of one dtype together, like a bucket of the reducer.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.utils import _to_kwargs
from torch.nn.parallel import DistributedDataParallel

from torch_pjrt import _C
from torch_pjrt.capture.data_parallel import unknown

REDUCER = "_torch_pjrt_reducer"  # attribute of a placeholder: the reducer that its hook notifies


def _refused(module: DistributedDataParallel) -> Iterator[tuple[Any, str]]:
    yield from unknown(module)
    locals_ = (getattr(parameter, "_local_tensor", parameter) for parameter in module.parameters())
    yield any(map(_C.Trace.is_known, locals_)), "parameters that are not the captured module's (replicate)"


def _check(module: DistributedDataParallel) -> None:
    for is_so, what in _refused(module):
        if is_so:
            raise NotImplementedError(
                f"a captured DistributedDataParallel with {what}: leave that out, or leave the capture out, as what is "
                "recorded between two reads is one program already"
            )


class _Reducer:
    """Reduces the gradients of one module in one run of a captured function."""

    def __init__(self, module: DistributedDataParallel) -> None:
        self.module, self.group = module, module.process_group
        self.ready: list[torch.Tensor] = []
        self.is_on = False

    def prepare(self, is_on: bool) -> None:
        """Sets whether the next backward reduces; forwards under ``no_sync()`` don't reset it."""
        self.is_on |= is_on

    def note(self, parameter: torch.Tensor) -> None:
        """Called when a parameter's gradient has been computed."""
        if not self.is_on:
            return
        if not self.ready:
            torch.autograd.Variable._execution_engine.queue_callback(self.reduce)
        self.ready.append(parameter)

    def reduce(self) -> None:
        of_dtypes: dict[torch.dtype, list[torch.Tensor]] = {}
        for parameter in self.ready:
            gradient = parameter.grad
            assert gradient is not None
            if gradient.layout != torch.strided:
                raise NotImplementedError(
                    "a captured DistributedDataParallel with sparse gradients: make its embeddings with sparse=False"
                )
            local: torch.Tensor = getattr(gradient, "_local_tensor", gradient)
            of_dtypes.setdefault(local.dtype, []).append(local.detach())
        self.ready, self.is_on = [], False
        with torch.no_grad():
            for gradients in of_dtypes.values():
                flat = torch.cat([gradient.reshape(-1) for gradient in gradients]) / self.group.size()
                dist.all_reduce(flat, group=self.group)
                parts = flat.split([gradient.numel() for gradient in gradients])
                for gradient, part in zip(gradients, parts, strict=True):
                    gradient.copy_(part.view(gradient.shape))


def _reducer_of(module: DistributedDataParallel) -> _Reducer:
    parameters = [
        parameter
        for name, parameter in module.module.named_parameters()
        if parameter.requires_grad and name not in module.parameters_to_ignore
    ]
    there = (getattr(parameter, REDUCER, None) for parameter in parameters)
    reducer = next((each for each in there if each is not None), None) or _Reducer(module)
    if reducer.module is not module:
        raise NotImplementedError(
            "a captured DistributedDataParallel with a parameter that another one has, too: wrap both modules in one"
        )
    for parameter in parameters:
        if getattr(parameter, REDUCER, None) is None:
            setattr(parameter, REDUCER, reducer)
            parameter.register_post_accumulate_grad_hook(reducer.note)
    return reducer


def _send_buffers(module: DistributedDataParallel) -> None:
    with torch.no_grad():
        for name, buffer in module.module.named_buffers():
            if name not in module.parameters_to_ignore:
                dist.broadcast(buffer, group=module.process_group, group_src=0)


def refuse_sparse_gradients() -> None:
    """Refuses sparse gradients in a world in one process, where each rank's gradient has rows of its own."""
    inner = DistributedDataParallel._build_params_for_reducer

    @functools.wraps(inner)
    def _build_params_for_reducer(self: Any) -> Any:
        parameters, are_sparse = inner(self)
        if any(are_sparse) and _C.world_size() > 1:
            raise NotImplementedError(
                "DistributedDataParallel with sparse gradients, of which each rank of a world has rows of its own: "
                "make its embeddings with sparse=False, or start a process for each rank with torchrun"
            )
        return parameters, are_sparse

    DistributedDataParallel._build_params_for_reducer = _build_params_for_reducer


def install() -> None:
    """Installs the patches; called once a world has begun."""
    kind = DistributedDataParallel
    inner_pre, inner_post = kind._pre_forward, kind._post_forward

    @functools.wraps(inner_pre)
    def _pre_forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        if not _C.tracing():
            return inner_pre(self, *inputs, **kwargs)
        _check(self)
        if self.will_sync_module_buffers():
            _send_buffers(self)
        if torch.is_grad_enabled():
            _reducer_of(self).prepare(self.require_backward_grad_sync)
        self.require_forward_param_sync = torch.is_grad_enabled() and self.require_backward_grad_sync
        if not self.device_ids:
            return inputs, kwargs
        moved, named = _to_kwargs(inputs, kwargs, torch.device("pjrt", self.device_ids[0]), False)
        return moved[0], named[0]

    @functools.wraps(inner_post)
    def _post_forward(self: Any, output: Any) -> Any:
        return output if _C.tracing() else inner_post(self, output)

    kind._pre_forward, kind._post_forward = _pre_forward, _post_forward
