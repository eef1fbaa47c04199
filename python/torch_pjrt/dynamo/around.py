"""Arguments that no program takes, and that are passed around it to the results.

AOTAutograd passes the parts of a subclass to the compiler, and rebuilds subclasses from results. Two kinds of parts
can't be computed with: the ragged size of a jagged nested tensor, which is a symbol without a value, and opaque
objects, such as the mesh of a DTensor. The graph is cut around calls that take an opaque object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

Compiled = Callable[[list[Any]], Sequence[Any]]
VALUES = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, int, float, type(None))


def is_ragged(value: Any) -> bool:
    return isinstance(value, torch.SymInt) and isinstance(value.node.hint, torch.SymInt)


def is_opaque(value: Any) -> bool:
    return not isinstance(value, VALUES)


def calls_with_opaque(graph: fx.Graph, example_inputs: Sequence[Any]) -> dict[fx.Node, str]:
    """Returns the calls that take an argument that is neither a tensor nor a number, each with the reason to cut."""
    given = zip(graph.find_nodes(op="placeholder"), example_inputs, strict=True)
    return {
        user: "it takes an object that is neither a tensor nor a number"
        for node, value in given
        if is_opaque(value)
        for user in node.users
        if user.op != "output"
    }


def compile_around(
    compiler: Callable[[fx.GraphModule, Sequence[Any], Sequence[str]], Compiled],
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    names: Sequence[str],
) -> Compiled:
    """Compiles the graph for its other arguments."""
    needed = calls_with_opaque(module.graph, example_inputs)
    inputs = module.graph.find_nodes(op="placeholder")
    kept = [
        i
        for i, (node, value) in enumerate(zip(inputs, example_inputs, strict=True))
        if not is_ragged(value) and (not is_opaque(value) or any(user in needed for user in node.users))
    ]
    if len(kept) == len(example_inputs):
        return compiler(module, example_inputs, names)
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}, return_output_node=False))
    placeholders = graph.find_nodes(op="placeholder")
    (output,) = graph.find_nodes(op="output")
    (results,) = output.args
    passed = {node: i for i, node in enumerate(placeholders) if i not in set(kept)}
    given_back = {position: passed[node] for position, node in enumerate(results) if node in passed}
    output.args = (tuple(None if node in passed else node for node in results),)
    for node in passed:
        graph.erase_node(node)
    inner = compiler(fx.GraphModule(module, graph), [example_inputs[i] for i in kept], [names[i] for i in kept])

    def run(arguments: list[Any]) -> Sequence[Any]:
        given = list(arguments)
        arguments.clear()
        outputs = list(inner([given[i] for i in kept]))
        for position, source in given_back.items():
            outputs[position] = given[source]
        return outputs

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
