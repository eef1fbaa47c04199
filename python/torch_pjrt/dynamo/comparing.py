"""The options ``verify``, which runs eager PyTorch next to a program, and ``retrace``, which runs the lazy device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from torch_pjrt import _C
from torch_pjrt.dynamo.splitting import outputs_of, writes
from torch_pjrt.dynamo.tracing import device_drawn_on, random_device, result_devices
from torch_pjrt.program.placeholders import naming_device, on_device, reaches

Function = Callable[[list[Any]], Sequence[Any]]


def _boxed(function: Function) -> Function:
    function._boxed_call = True  # type: ignore[attr-defined]
    return function


def draws_random_numbers(graph: fx.Graph) -> bool:
    return any(random_device(node) for node in graph.nodes)


def _compare(what: str, compiled: Any, eager: Any) -> None:
    if not isinstance(eager, torch.Tensor):
        return
    try:
        torch.testing.assert_close(compiled.cpu(), eager.cpu(), equal_nan=True, check_stride=True)
    except AssertionError as difference:
        raise RuntimeError(f"backend 'pjrt', option 'verify': {what} differs from eager: {difference}") from None


def verified(graph: fx.GraphModule, function: Function, names: Sequence[str]) -> Function:
    """Wraps ``function`` so that each call runs the graph in eager mode as well and compares the results.

    ``names`` are the user's names of the arguments. A graph that draws random numbers can't be compared, and is
    refused.

    Raises (when called):
        RuntimeError: a result or a mutated argument differs, by the tolerances of ``torch.testing.assert_close``.
    """
    if draws_random_numbers(graph.graph):
        raise RuntimeError(
            "backend 'pjrt', option 'verify': the graph draws random numbers, and eager's would be others"
        )
    outputs = pytree.tree_leaves(outputs_of(graph), is_leaf=lambda x: x is None)

    def run(arguments: list[Any]) -> Sequence[Any]:
        if _C.has_no_values(tuple(arguments)):
            return function(arguments)
        given = list(arguments)
        copies = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), given)
        with torch.no_grad():
            expected = pytree.tree_leaves(fx.Interpreter(graph).run(*copies), is_leaf=lambda x: x is None)
        results = function(arguments)
        for node, result, eager in zip(outputs, results, expected, strict=True):
            _compare(f"result '{node}'", result, eager)
        for name, argument, copy in zip(names, given, copies, strict=True):
            _compare(f"argument '{name}'", argument, copy)
        return results

    return _boxed(run)


@contextmanager
def drawing_from(device: torch.device) -> Iterator[None]:
    """Seeds the device's generator in the block from the generator of ``device``."""
    if device.type == "pjrt":
        yield
        return
    state = torch.pjrt.get_rng_state()
    torch.pjrt.manual_seed(int(torch.empty((), dtype=torch.int64, device=device).random_()))
    try:
        yield
    finally:
        torch.pjrt.set_rng_state(state)


def _moved(tensor: torch.Tensor, memory: bool) -> torch.Tensor:
    """Returns a copy on the device; with ``memory``, it has the memory around the tensor's elements as well."""
    tensor = tensor.detach()
    if tensor.device.type == "pjrt" or not memory:
        return on_device(tensor)
    whole = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0)
    return on_device(whole).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def retraced(graph: fx.GraphModule) -> Function:
    """Returns a function that records the graph in each call, on copies of the arguments on the device."""
    memory = any(reaches(node.target) for node in graph.graph.nodes)
    mutated = {node.args[0] for node in graph.graph.nodes if writes(node)}
    targets = [i for i, node in enumerate(graph.graph.find_nodes(op="placeholder")) if node in mutated]
    drawn_on = device_drawn_on(graph)

    class Recorded(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            args, kwargs = naming_device((args, kwargs))
            return target(*args, **kwargs)

        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            return on_device(super().get_attr(target, args, kwargs))

    def run(arguments: list[Any]) -> Sequence[Any]:
        given = list(arguments)
        arguments.clear()
        if _C.has_no_values(tuple(given)):
            with torch.no_grad():
                return list(graph(*given))
        moved = pytree.tree_map_only(torch.Tensor, lambda t: _moved(t, memory), given)
        with torch.no_grad(), drawing_from(drawn_on):
            results = Recorded(graph).run(*moved)
            for i in targets:
                if given[i] is not moved[i]:
                    given[i].copy_(moved[i])
        back = {id(m): g for m, g in zip(moved, given, strict=True)}
        devices = iter(result_devices(graph, pytree.tree_leaves(results, is_leaf=lambda x: x is None)))

        def given_back(result: torch.Tensor) -> torch.Tensor:
            device = next(devices)
            return back[id(result)] if id(result) in back else result.to(device)

        return pytree.tree_map_only(torch.Tensor, given_back, list(results))

    return _boxed(run)
