"""Optimizers that Dynamo captures; once this is imported, with the counts of their steps on the device, and with a step
of ``torch._foreach_*`` calls as one composite where the backend is asked for it."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables.optimizer import OptimizerVariable

from torch_pjrt import _C
from torch_pjrt.meanings.asked import made
from torch_pjrt.meanings.known import known
from torch_pjrt.meanings.steps import keep_steps


def make_capturable(optimizer: torch.optim.Optimizer) -> None:
    """A step count of parameters on this device will lie there, too.

    Dynamo traces a step as if all groups were capturable, and sees to it before the state is made, of CUDA and XPU
    only. Counts that are on the CPU are moved when the second group of parameters is come to: the graph would go on
    counting in those that the first group had before."""
    for group in optimizer.param_groups:
        parameters = group["params"]
        if "capturable" in group and all(p.device.type == "pjrt" and p not in optimizer.state for p in parameters):
            group["capturable"] = True


_inner = OptimizerVariable._set_capturable


def _set_capturable(self: Any, tx: Any) -> None:
    make_capturable(self.value)
    _inner(self, tx)


OptimizerVariable._set_capturable = _set_capturable


@torch._dynamo.assume_constant_result
def captured_whole(name: str) -> bool:
    """Is the backend that Dynamo captures for asked for this composite?"""
    backend: Any = innermost_backend(InstructionTranslator.current_tx().output.compiler_fn)
    options = getattr(backend, "kwargs", {}).get("options", {})
    if getattr(backend, "compiler_name", "") != "pjrt":
        return False
    asked = made(options["composites"]) if "composites" in options else _C.asked_composites()
    return asked is not None and bool(asked.contains(name))


def install() -> None:
    known.captured_whole = captured_whole
    keep_steps()
