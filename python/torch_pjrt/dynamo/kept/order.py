"""The layout of the values that a training step's forward saves for its backward, and that only these two see.

oneDNN's convolutions take images in NHWC layout, and XLA propagates the layout through the operations between them
(``src/ops/xla_cpu/library_product.cpp``). Captured images are usually row-major: the forward would transpose each
saved image to row-major, and the backward would transpose it back."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from torch_pjrt.dynamo.freezing import is_claimed

aten = torch.ops.aten
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
# Operations besides elementwise ones whose results have the layout of their operands.
CARRYING = {
    operator.getitem,
    aten._to_copy.default,
    aten._batch_norm_with_update_functional.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
    aten.avg_pool2d.default,
    aten.cat.default,
    aten.clone.default,
    aten.convolution.default,
    aten.detach.default,
    aten.max_pool2d_with_indices.default,
    aten.native_batch_norm.default,
}


def images_of(node: fx.Node) -> torch.Tensor | None:
    """Returns the call's (first) result if it is images of known sizes on the CPU."""
    value: Any = node.meta.get("val")
    if isinstance(value, (tuple, list)) and value:
        value = value[0]
    if not isinstance(value, torch.Tensor) or value.dim() not in FORMATS or value.device.type != "cpu":
        return None
    return value if all(isinstance(size, int) for size in value.shape) else None


def nhwc_calls(graph: fx.Graph) -> set[fx.Node]:
    """Returns the calls of the graph whose images XLA will have in NHWC layout."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        images = images_of(node) if node.op == "call_function" else None
        if images is None:
            continue
        carries = node.target in CARRYING or torch.Tag.pointwise in getattr(node.target, "tags", ())
        if (carries and any(operand in found for operand in node.all_input_nodes)) or (
            node.target is aten.convolution.default and is_claimed("convolution", node)
        ):
            found.add(node)
    return found


def copied(graph: fx.Graph, node: fx.Node, value: torch.Tensor, format: torch.memory_format) -> fx.Node:
    """Adds a copy at the graph's insertion point; ``value`` is the node's value."""
    made = graph.call_function(aten.clone.default, (node,), {"memory_format": format})
    made.meta = {**node.meta, "val": value.clone(memory_format=format)}
    return made


def keep_nhwc_layout(forward: fx.GraphModule, backward: fx.GraphModule, results: int) -> None:
    """Saves images in NHWC layout for the backward if XLA has them so.

    The first ``results`` results of the forward are the user's and stay unchanged. The others are arguments of the
    backward, by name."""
    last = nhwc_calls(forward.graph)
    (output,) = forward.graph.find_nodes(op="output")
    given: list[Any] = list(output.args[0])
    arguments = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    for i, node in enumerate(given):
        if i < results or node not in last or node in given[:results] or node.name not in arguments:
            continue
        argument, value = arguments[node.name], node.meta["val"]
        format = FORMATS[value.dim()]
        if not value.is_contiguous() or value.is_contiguous(memory_format=format):
            continue
        with value.fake_mode, forward.graph.inserting_before(output):
            given[i] = copied(forward.graph, node, value, format)
        with value.fake_mode, backward.graph.inserting_after(argument):
            argument.meta = {**argument.meta, "val": given[i].meta["val"]}
            as_captured = copied(backward.graph, argument, argument.meta["val"], torch.contiguous_format)
        argument.replace_all_uses_with(as_captured, delete_user_cb=lambda user, own=as_captured: user is not own)
    output.args = (tuple(given),)
    forward.recompile()
    backward.recompile()
