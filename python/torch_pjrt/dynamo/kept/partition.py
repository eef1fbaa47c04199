"""Decides which values of a training step's forward are saved for its backward."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from torch_pjrt.dynamo.kept.order import copied, keep_nhwc_layout
from torch_pjrt.dynamo.tracing import random_device, up_to_memory

aten = torch.ops.aten


def keep_random_numbers(joint: fx.GraphModule) -> None:
    """Saves random draws in an activation checkpoint instead of repeating them.

    PyTorch would wrap each draw in a call that saves or restores a generator's state, which can't be part of a
    program."""
    for node in list(joint.graph.nodes):
        if node.meta.get("recompute") is None or random_device(node) is None:
            continue
        if node.target is aten.native_dropout.default:
            multiply_by_mask(node)
        for each in (node, *(user for user in node.users if user.target is operator.getitem)):
            each.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def multiply_by_mask(dropout: fx.Node) -> None:
    """Replaces a dropout by its input times the mask and a scalar, as on the CPU, so that only the mask is saved."""
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


def read_less(joint: fx.GraphModule) -> None:
    """Reduces the values that calls of the backward read of the forward, so that no more is saved: a mask of a
    rectifier's positive results, the shape of a pooled tensor, 32 bits of its indices."""
    for node in list(joint.graph.nodes):
        if node.target is aten.threshold_backward.default:
            read_a_mask(node)
        elif node.target in POOLING_BACKWARD:
            read_a_shape(node)


POOLING_BACKWARD = (
    aten.max_pool2d_with_indices_backward.default,
    aten.max_pool3d_with_indices_backward.default,
    aten.adaptive_max_pool2d_backward.default,
    aten.adaptive_max_pool3d_backward.default,
)


def insert_before(node: fx.Node, target: Any, *arguments: Any, **options: Any) -> fx.Node:
    """Adds a call to the joint graph, with the metadata that AOTAutograd's trace would give it."""
    values = fx.map_arg((arguments, options), lambda argument: argument.meta["val"])
    with node.graph.inserting_before(node):
        made = node.graph.call_function(target, arguments, options)
    with node.meta["val"].fake_mode:
        made.meta = {**node.meta, "val": target(*values[0], **values[1])}
    return made


def read_a_mask(node: fx.Node) -> None:
    """Reads of a rectifier's result only a mask of the elements whose gradient is zero; NaN's is not."""
    gradient, result, threshold = node.args
    if gradient.meta["val"].dtype != node.meta["val"].dtype or gradient.meta["val"].shape != node.meta["val"].shape:
        return
    mask = insert_before(node, aten.le.Scalar, result, threshold)
    node.replace_all_uses_with(insert_before(node, aten.masked_fill.Scalar, gradient, mask, 0))
    node.graph.erase_node(node)


def read_a_shape(node: fx.Node) -> None:
    """Reads of a pooled tensor with known sizes only its shape, and 32 bits of its indices."""
    gradient, pooled, *window, indices = node.args
    like = pooled.meta["val"]
    if not all(isinstance(size, int) for size in like.shape):
        return
    empty = insert_before(node, aten.new_empty_strided.default, gradient, like.shape, like.stride(), dtype=like.dtype)
    short = insert_before(node, aten._to_copy.default, indices, dtype=torch.int32)
    # Zeros of the gradient widen the indices in the backward: the partitioner can't move the sum to the forward.
    zeros = insert_before(node, aten.new_zeros.default, gradient, indices.meta["val"].shape, dtype=torch.int64)
    node.args = (gradient, empty, *window, insert_before(node, aten.add.Tensor, zeros, short))


def save_what_is_overwritten(forward: fx.GraphModule, backward: fx.GraphModule, results: int) -> None:
    """Saves a copy of an argument's old value where the forward writes a new one to it.

    AOTAutograd's partitioner saves the argument itself, of which the backward would read the new value."""
    written = {node.args[0] for node in forward.graph.find_nodes(op="call_function", target=aten.copy_.default)}
    (output,) = forward.graph.find_nodes(op="output")
    given: list[Any] = list(output.args[0])
    arguments = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    for i, node in enumerate(given):
        if i < results or not isinstance(node, fx.Node) or up_to_memory(node)[-1] not in written:
            continue
        with node.meta["val"].fake_mode, forward.graph.inserting_after(node):
            given[i] = copied(forward.graph, node, node.meta["val"], torch.preserve_format)
        if node.name in arguments:
            arguments[node.name].meta["val"] = given[i].meta["val"]
    output.args = (tuple(given),)
    forward.recompile()


def partition(joint: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Splits a joint graph into forward and backward, with minimal values to save."""
    keep_random_numbers(joint)
    read_less(joint)
    forward, backward = min_cut_rematerialization_partition(joint, inputs, **options)
    save_what_is_overwritten(forward, backward, options["num_fwd_outputs"])
    keep_nhwc_layout(forward, backward, options["num_fwd_outputs"])
    return forward, backward
