"""Optimizers that Dynamo captures; once this is imported, with the counts of their steps on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.variables.optimizer import OptimizerVariable


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
