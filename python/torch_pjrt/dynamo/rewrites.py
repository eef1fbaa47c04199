"""Rewrites parts of a captured graph that AOTAutograd refuses or can't trace into."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
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
    """Returns the name of the called function. Names of Dynamo's own functions aren't stable."""
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def written(value: object) -> object:
    """Returns the tensor that a chain of in-place calls wrote and returned."""
    while isinstance(value, fx.Node):
        in_place = value.op == "call_function" and value.target in IN_PLACE
        method = value.op == "call_method" and str(value.target).endswith("_") and not str(value.target).endswith("__")
        if not (in_place or method):
            break
        value = value.args[0]
    return value


ASSIGNMENTS = ("set_", "shallow_copy_data_")  # assign ``.data``, up to torch 2.13 and since


def without_self_assignments(graph: fx.Graph) -> bool:
    """Removes ``p.data = x`` where x is ``p.data``, with the correction of p's version after it.

    ``p.data *= mask`` is captured as a write to ``p.data`` and this assignment, which AOTAutograd refuses if p requires
    gradients."""
    found = False
    for node in list(graph.nodes):
        if name_of(node) not in ASSIGNMENTS or len(node.args) != 2:
            continue
        target, value = node.args[0], written(node.args[1])
        if not isinstance(value, fx.Node) or name_of(value) != "_get_data_attr" or value.args[0] is not target:
            continue
        corrections = [user for user in node.users if name_of(user) == "_lower_version_count_by_1"]
        if len(corrections) != len(node.users):
            continue
        for user in corrections:
            graph.erase_node(user)
        graph.erase_node(node)
        found = True
    return found


def fill_diagonal_(tensor: torch.Tensor, fill_value: float, wrap: bool = False) -> torch.Tensor:
    """Computes ``Tensor.fill_diagonal_`` by ``diagonal``; PyTorch's own kernel writes through ``as_strided``."""
    diagonal = tensor
    while diagonal.dim() > 1:
        diagonal = diagonal.diagonal(0, 0, 1)
    diagonal.fill_(fill_value)
    if wrap and tensor.dim() == 2:
        around = tensor.shape[1] + 1
        for top in range(around, tensor.shape[0], around):
            tensor[top:].diagonal().fill_(fill_value)
    return tensor


def with_diagonals(graph: fx.Graph) -> bool:
    """Replaces ``fill_diagonal_``, which may be called on a view."""
    nodes = graph.find_nodes(op="call_method", target="fill_diagonal_")
    for node in nodes:
        node.op, node.target = "call_function", fill_diagonal_
    return bool(nodes)


def unfold(tensor: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """Computes ``Tensor.unfold`` of windows with gaps by views that AOTAutograd can write through.

    It takes the gaps for zeros (https://github.com/pytorch/pytorch/issues/198102)."""
    if step <= size or tensor.dim() == 0 or size > tensor.shape[dimension]:
        return tensor.unfold(dimension, size, step)
    length, dimension = tensor.shape[dimension], dimension % tensor.dim()
    count = (length - size) // step + 1
    if size == 1:
        return torch.ops.aten.slice.Tensor(tensor, dimension, 0, None, step).unsqueeze(-1)
    if count == 1:
        windows = tensor.narrow(dimension, 0, size).unflatten(dimension, (1, size))
    elif count * step <= length:
        windows = tensor.narrow(dimension, 0, count * step).unflatten(dimension, (count, step))
        windows = windows.narrow(dimension + 1, 0, size)
    else:
        raise NotImplementedError(
            f"unfold(dimension={dimension}, size={size}, step={step}) of {length} elements is written to, and "
            "torch.compile would write zeros between the windows: write to slices (x[i::step] for i in range(size))"
        )
    return windows.movedim(dimension + 1, -1)


def with_windows(graph: fx.Graph) -> bool:
    """Replaces ``unfold`` where its result or what it views is written."""
    nodes = [
        node
        for node in graph.find_nodes(op="call_method", target="unfold")
        if getattr(node.meta.get("example_value"), "_version", 0)
    ]
    for node in nodes:
        node.op, node.target = "call_function", unfold
    return bool(nodes)


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without the last of its results, which tells what went wrong: that is raised."""

    def call(*args: Any, **kwargs: Any) -> Any:
        *results, _ = function(*args, **kwargs, check_errors=True)
        return tuple(results) if len(results) > 1 else results[0]

    return call


CHOLESKY, INVERSE = checked(torch.linalg.cholesky_ex), checked(torch.linalg.inv_ex)
CHECKED: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.linalg.cholesky, torch.cholesky, "cholesky"), CHOLESKY),
    **dict.fromkeys((torch.linalg.inv, torch.inverse, "inverse"), INVERSE),
    torch.linalg.solve: checked(torch.linalg.solve_ex),
    torch.linalg.lu_factor: checked(torch.linalg.lu_factor_ex),
    torch.linalg.ldl_factor: checked(torch.linalg.ldl_factor_ex),
}
LOOPS = ("cond", "while_loop", "scan", "map_impl")


def with_checks(module: fx.GraphModule) -> None:
    """AOTAutograd drops the checks of torch.linalg from bodies of loops and branches. Lets the calls there raise."""
    for node in module.graph.nodes:
        if name_of(node) not in LOOPS:
            continue
        bodies = [each for each in node.args if isinstance(each, fx.Node) and each.op == "get_attr"]
        for part in (part for body in bodies for part in module.get_submodule(body.target).modules()):
            calls = [call for call in part.graph.nodes if call.target in CHECKED]
            for call in calls:
                call.op, call.target = "call_function", CHECKED[call.target]
            if calls:
                part.recompile()


def with_regions(module: fx.GraphModule) -> bool:
    """Inlines the calls of ``nested_compile_region``: one program contains them all, and a call that must be cut out of
    a region is then a call of the graph."""
    graph, found = module.graph, False
    copied: set[torch.nn.Module] = set()
    while regions := graph.find_nodes(op="call_function", target=torch.ops.higher_order.invoke_subgraph):
        for region in regions:
            attribute, _, *operands = region.args
            body = module.get_submodule(attribute.target)
            copies = dict(zip(body.graph.find_nodes(op="placeholder"), operands, strict=True))
            with graph.inserting_before(region):
                results = graph.graph_copy(body.graph, copies)
            if body in copied:  # each call has its own sizes that depend on data
                for node in body.graph.nodes:
                    if node.op == "call_function":
                        copies[node].meta.pop("unbacked_bindings", None)
            copied.add(body)
            for node in body.graph.find_nodes(op="get_attr"):
                copies[node].target = f"{attribute.target}_{node.target}".replace(".", "_")
                setattr(module, copies[node].target, operator.attrgetter(node.target)(body))
            for item in list(region.users):  # Dynamo only unpacks the results
                item.replace_all_uses_with(results[item.args[1]])
                graph.erase_node(item)
            graph.erase_node(region)
            if not attribute.users:
                graph.erase_node(attribute)
        found = True
    return found


def rewrite(module: fx.GraphModule) -> None:
    """Rewrites the graph in place, including bodies of control flow and checkpoints."""
    for part in list(module.modules()):
        if isinstance(part, fx.GraphModule):
            found = [
                with_regions(part),
                without_self_assignments(part.graph),
                with_diagonals(part.graph),
                with_windows(part.graph),
            ]
            if any(found):
                part.recompile()
            with_checks(part)
