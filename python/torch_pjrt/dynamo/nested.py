"""Ragged sizes: what stands for the sizes of a jagged nested tensor along its ragged dimension.

AOTAutograd hands a nested tensor to the compiler as its dense parts. The ragged size comes along as a symbol that is no
number: nothing is computed of it, a graph at most gives it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

Compiled = Callable[[list[Any]], Sequence[Any]]


def is_ragged(value: Any) -> bool:
    return isinstance(value, torch.SymInt) and isinstance(value.node.hint, torch.SymInt)


def compile_without_ragged_sizes(
    compiler: Callable[[fx.GraphModule, Sequence[Any], Sequence[str]], Compiled],
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    names: Sequence[str],
) -> Compiled:
    """Compiles the graph for its other arguments; ragged sizes go around it, from the arguments to the results."""
    kept = [i for i, value in enumerate(example_inputs) if not is_ragged(value)]
    if len(kept) == len(example_inputs):
        return compiler(module, example_inputs, names)
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}, return_output_node=False))
    placeholders = graph.find_nodes(op="placeholder")
    (output,) = graph.find_nodes(op="output")
    (results,) = output.args
    ragged = {node: i for i, node in enumerate(placeholders) if i not in set(kept)}
    given_back = {position: ragged[node] for position, node in enumerate(results) if node in ragged}
    output.args = (tuple(None if node in ragged else node for node in results),)
    for node in ragged:
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
