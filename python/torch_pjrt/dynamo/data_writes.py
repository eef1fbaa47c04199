"""``p.data *= mask``: Dynamo captures that ``p.data`` is written in place, and then set to itself, which AOTAutograd
refuses where ``p`` needs gradients."""

from __future__ import annotations

import operator

from torch import fx

IN_PLACE = {
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
    operator.iand,
    operator.ior,
    operator.ixor,
}


def name_of(node: fx.Node) -> str:
    """Of the function that is called; Dynamo's have no names that last."""
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def written(value: object) -> object:
    """The tensor that a chain of calls in place has written and given back."""
    while isinstance(value, fx.Node):
        in_place = value.op == "call_function" and value.target in IN_PLACE
        method = value.op == "call_method" and str(value.target).endswith("_") and not str(value.target).endswith("__")
        if not (in_place or method):
            break
        value = value.args[0]
    return value


def without_self_assignments(module: fx.GraphModule) -> None:
    """Takes ``p.data = x`` out of a graph where x is ``p.data``, and the correction of p's version behind it."""
    found = False
    for node in list(module.graph.nodes):
        if name_of(node) != "set_" or len(node.args) != 2:
            continue
        target, value = node.args[0], written(node.args[1])
        if not isinstance(value, fx.Node) or name_of(value) != "_get_data_attr" or value.args[0] is not target:
            continue
        corrections = [user for user in node.users if name_of(user) == "_lower_version_count_by_1"]
        if len(corrections) != len(node.users):
            continue
        for user in corrections:
            module.graph.erase_node(user)
        module.graph.erase_node(node)
        found = True
    if found:
        module.recompile()
