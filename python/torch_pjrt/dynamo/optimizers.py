"""Makes Dynamo capture steps of optimizers, once it is imported, with step counts on the device. A step of
``torch._foreach_*`` calls is one composite if the backend is asked for it."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables.optimizer import OptimizerVariable

from torch_pjrt import _C
from torch_pjrt.composite_ops.asked import made
from torch_pjrt.composite_ops.known import known
from torch_pjrt.composite_ops.steps import keep_steps


def make_capturable(optimizer: torch.optim.Optimizer) -> None:
    """Makes optimizers of parameters on this device capturable, so that their step counts are on the device.

    Dynamo traces a step as if all groups were capturable, and makes only those on CUDA and XPU so before their state is
    made. It would move step counts on the CPU when it traces the second group of parameters, and the graph would
    continue to count in the old tensors of the first group."""
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
    """Whether the backend that Dynamo captures for is asked for this composite."""
    backend: Any = innermost_backend(InstructionTranslator.current_tx().output.compiler_fn)
    options = getattr(backend, "kwargs", {}).get("options", {})
    if getattr(backend, "compiler_name", "") != "pjrt":
        return False
    asked = made(options["composites"]) if "composites" in options else _C.asked_composites()
    return asked is not None and bool(asked.contains(name))


def install() -> None:
    known.captured_whole = captured_whole
    keep_steps()
