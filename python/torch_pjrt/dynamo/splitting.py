"""Cuts a graph around calls that XLA can't compile; the rest is compiled in as few pieces as the order of calls
allows."""

from __future__ import annotations

import operator
from typing import Any

from torch import fx
from torch._ops import HigherOrderOperator
from torch.fx.passes.split_module import split_module

from torch_pjrt.program.effects import has_effects


def writes(node: fx.Node) -> bool:
    """Whether the call changes its arguments. In a functional graph these are the copies into inputs at its end, and
    calls that resize storages."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def stages(graph: fx.Graph, refused: set[fx.Node]) -> dict[fx.Node, int]:
    """Returns each call's stage; even stages are compiled, odd ones are not.

    A call is in the earliest stage after its operands, and not before a call that changes its arguments. Calls with
    other effects keep their order, because every process of a collective must begin the same one."""
    stage: dict[fx.Node, int] = {}
    first = last = effects = 0
    for node in graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        if node.target is operator.getitem and isinstance(source := node.args[0], fx.Node):
            stage[node] = stage[source]
            continue
        before = max((stage.get(source, 0) for source in node.all_input_nodes), default=0)
        before = max(before, last if writes(node) else first)  # reads of what it changes stay before it, or after it
        acts = has_effects(node.target) or isinstance(node.target, HigherOrderOperator)
        if acts:
            before = max(before, effects)
        odd = node in refused
        stage[node] = before + ((before % 2 == 0) if odd else (before % 2 == 1))
        last = max(last, stage[node])
        if acts:
            effects = stage[node]
        if writes(node):
            first = stage[node]
    return stage


def split(module: fx.GraphModule, refused: set[fx.Node]) -> tuple[fx.GraphModule, list[str]]:
    """Returns the module as a sequence of submodules, which return tuples, and the names of those to compile.

    Nodes keep their names.
    """
    stage = stages(module.graph, refused)
    output = module.graph.output_node()
    for node in sorted(stage, key=lambda node: stage[node]):
        output.prepend(node)
    parts = split_module(
        module, module, lambda node: stage[node], keep_original_order=True, keep_original_node_name=True
    )  # fmt: skip
    give_tuples(parts)
    names = sorted({s for s in stage.values() if s % 2 == 0})
    return parts, [f"submod_{name}" for name in names]


def give_tuples(parts: fx.GraphModule) -> None:
    """Makes submodules with one result return a tuple, which only split_module of torch 2.13 can do itself."""
    for node in parts.graph.find_nodes(op="call_module"):
        submodule = parts.get_submodule(node.target)
        assert isinstance(submodule, fx.GraphModule)
        result = outputs_of(submodule)
        if not isinstance(result, fx.Node):
            continue
        submodule.graph.output_node().args = ((result,),)
        submodule.recompile()
        with parts.graph.inserting_after(node):
            only = parts.graph.call_function(operator.getitem, (node, 0))
        node.replace_all_uses_with(only, delete_user_cb=lambda user, only=only: user is not only)
    parts.recompile()


def outputs_of(module: fx.GraphModule) -> Any:
    (output,) = module.graph.find_nodes(op="output")
    return output.args[0]
