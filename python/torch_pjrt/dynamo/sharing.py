"""Calls of a compiled function whose arguments share memory otherwise than when it was compiled.

AOTAutograd compiles an update of an argument for the arguments that share memory with it in the first call. Dynamo's
guards don't compare the memory of later calls, which would be wrong without an error."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._C._dynamo.guards import compute_overlapping_tensors
from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta

from torch_pjrt import _C, report


def sharing_groups(example_inputs: Sequence[Any]) -> list[int]:
    """Returns for each input the first one of its storage if inputs that share the storage overlap, else -1.

    AOTAutograd decides in the same way which inputs it merges into one."""
    groups = [-1] * len(example_inputs)
    by_storage: dict[int, list[int]] = defaultdict(list)
    for i, value in enumerate(example_inputs):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            by_storage[value.untyped_storage()._cdata].append(i)
    for indices in by_storage.values():
        tensors = [example_inputs[i] for i in indices]
        if len(indices) > 1 and compute_overlapping_tensors(tensors, symbolic=False):
            for i in indices:
                groups[i] = indices[0]
    return groups


def while_memory_is_shared_alike(
    compiled: Callable[..., Any],
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    names: Sequence[str],
    about: ViewAndMutationMeta,
) -> Callable[..., Any]:
    """Returns ``compiled``, replaced by ``module`` in calls whose arguments share updated memory in another way.

    ``about`` is what AOTAutograd found; ``names`` are the user's names of the inputs."""
    tensors = sum(isinstance(value, torch.Tensor) for value in example_inputs)
    if tensors < 2 or not any(info.mutates_data for info in about.input_info):
        return compiled
    groups = sharing_groups(example_inputs)
    if max(groups) < 0 and len(about.input_info) == len(example_inputs):
        updated = [i for i, info in enumerate(about.input_info) if info.mutates_data]
    else:  # the indices are those of merged inputs
        updated = list(range(len(example_inputs)))
    offsets = [
        int(value.storage_offset()) if group >= 0 else 0 for value, group in zip(example_inputs, groups, strict=True)
    ]

    def as_captured(first: Any, second: Any, arguments: Sequence[Any]) -> Any:
        reason = (
            f"'{names[first]}' and '{names[second]}' share memory otherwise than when the function was compiled, and "
            "it updates memory in place"
        )
        if _C.strict():
            raise RuntimeError(f"{reason} (an error in strict mode): pass a clone() of one of them")
        if report.is_active():
            report.record(report.GraphBreak(reason=reason, file="", line=0))
        if _C.count_fallback("shared memory"):
            warnings.warn(f"{reason}: such calls run in eager mode. Pass a clone() of one of them.", stacklevel=2)
        return module(*arguments)

    return _C.Shared(compiled, as_captured, updated, groups, offsets).call
