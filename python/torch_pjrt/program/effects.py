"""Ops with side effects, which run in each call of a compiled function and never while it is traced."""

from __future__ import annotations

from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

from torch_pjrt import _C

# Libraries whose ops only compute, or mark computations, as the profiler's do.
COMPUTE_ONLY = frozenset(
    {
        "aten", "prims", "rngprims", "inductor", "quantized_decomposed", "flex_lib", "torch_attn", "onnx",
        "onnx_symbolic", "profiler", "fsdp", "torch_pjrt",
    }
)  # fmt: skip
# In a world in one process, collectives are ops of the graph like any other (Note [World], src/graph/world.h).
OF_WORLD = frozenset({"_c10d_functional", "_c10d_functional_autograd", "_dtensor", "pjrt_world"})
# Dispatch keys whose kernels run for every backend, instead of the recorder.
FOR_EVERY_BACKEND = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def is_custom(target: Any) -> bool:
    """Whether it is an op of the user's ``torch.library.custom_op``."""
    definition = OPDEFS.get(target._schema.name)
    return definition is not None and not definition._init_fn.__module__.startswith("torch.")


def is_of_all_processes(target: Any) -> bool:
    """Whether it is a collective that is an op of the graph in a captured step of all processes of a client
    (``src/device/process_group/backend.h``)."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace in OF_WORLD and _C.process() is not None


def has_effects(target: Any) -> bool:
    """Whether the op may have effects besides its results and the arguments that its schema declares as written.

    For PyTorch's own libraries this is known. An op of another library is assumed to have effects if the dispatcher has
    code of it for every backend: collectives and waits for them, streams, and user code under ``torch.library``. An op
    without such code goes to the recorder, which runs nothing.
    """
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target.namespace in COMPUTE_ONLY:
        return target is torch.ops.aten._print.default
    if target.namespace in OF_WORLD and _C.world_size() > 1:
        return False
    name = target.name()
    return (
        is_custom(target)
        or any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in FOR_EVERY_BACKEND)
        or any("__torch__." in str(value.type) for value in (*target._schema.arguments, *target._schema.returns))
    )
