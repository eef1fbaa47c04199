"""What of a training step's forward is kept for its backward."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from functorch.compile import min_cut_rematerialization_partition
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from torch_pjrt.dynamo.tracing import random_device


def keep_random_numbers(joint: fx.GraphModule) -> None:
    """In an activation checkpoint, what was drawn is kept, not drawn again: PyTorch would wrap each such call in one
    that saves or restores a generator's state, which is no part of a program and would cut it."""
    for node in joint.graph.nodes:
        if node.meta.get("recompute") is not None and random_device(node) is not None:
            for each in (node, *(user for user in node.users if user.target is operator.getitem)):
                each.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def partition(joint: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """A joint graph as one for the forward and one for the backward, with the least to keep between them."""
    keep_random_numbers(joint)
    return min_cut_rematerialization_partition(joint, inputs, **options)
