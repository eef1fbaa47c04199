"""What of a training step's forward is kept for its backward."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from torch_pjrt.dynamo.tracing import random_device

aten = torch.ops.aten


def keep_random_numbers(joint: fx.GraphModule) -> None:
    """In an activation checkpoint, what was drawn is kept, not drawn again: PyTorch would wrap each such call in one
    that saves or restores a generator's state, which is no part of a program and would cut it."""
    for node in list(joint.graph.nodes):
        if node.meta.get("recompute") is None or random_device(node) is None:
            continue
        if node.target is aten.native_dropout.default:
            multiply_by_mask(node)
        for each in (node, *(user for user in node.users if user.target is operator.getitem)):
            each.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def multiply_by_mask(dropout: fx.Node) -> None:
    """What a dropout gives becomes its input times the mask and a number, as on the CPU: then only the mask is kept."""
    x, p, train = dropout.args
    if train is False:
        return
    results = [user for user in dropout.users if user.target is operator.getitem]
    graph = dropout.graph

    def after(node: fx.Node, target: Any, *arguments: Any, like: int) -> fx.Node:
        with graph.inserting_after(node):
            made = graph.call_function(target, arguments)
        made.meta = {**dropout.meta, "val": dropout.meta["val"][like]}
        return made

    mask = after(dropout, operator.getitem, dropout, 1, like=1)
    masked = after(mask, aten.mul.Tensor, x, mask, like=0)
    scaled = after(masked, aten.mul.Tensor, masked, 0.0 if p == 1 else 1 / (1 - p), like=0)
    for old in results:
        old.replace_all_uses_with(mask if old.args[1] == 1 else scaled)
        graph.erase_node(old)


def partition(joint: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """A joint graph as one for the forward and one for the backward, with the least to keep between them."""
    keep_random_numbers(joint)
    return min_cut_rematerialization_partition(joint, inputs, **options)
