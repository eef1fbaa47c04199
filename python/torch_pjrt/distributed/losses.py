"""Gradients of mean losses over sharded DTensors.

DTensor treats the backward of a pointwise loss as pointwise. With ``reduction="mean"`` each rank would divide by the
number of elements of its shard, and the gradient would be too large by the number of shards (in processes, too).
"""

from __future__ import annotations

from typing import Any

import torch

from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.distributed.operators import of_shards

aten = torch.ops.aten
MEAN, SUM = 1, 2  # at::Reduction
BACKWARDS = (
    aten.mse_loss_backward,
    aten.smooth_l1_loss_backward,
    aten.huber_loss_backward,
    aten.binary_cross_entropy_backward,
    aten.soft_margin_loss_backward,
)


def _divide_by_all(of_tensors: Any) -> None:
    dispatcher = of_tensors.DTensor._op_dispatcher

    def handler(op: Any, args: Any, kwargs: Any) -> Any:
        arguments = op._schema.arguments  # all are positional
        names = [argument.name for argument in arguments]
        defaults = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        if given["reduction"] == MEAN:
            given["grad_output"] = given["grad_output"] / given["self"].numel()
            given["reduction"] = SUM
        called, local = of_shards(dispatcher, op, [given[name] for name in names], {}, lambda _: None)
        return dispatcher.wrap(op(*local, **called.local_kwargs), called.output_sharding.output_spec)

    handlers = {packet.default: handler for packet in BACKWARDS}
    dispatcher._custom_op_handlers.update(handlers)


def install() -> None:
    """Installs the patches; called once a world has begun."""
    after_import("torch.distributed.tensor", _divide_by_all)
