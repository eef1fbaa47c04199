"""Writes the first stage: the user's function as Dynamo captured it."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from torch_pjrt.traces.events import Ref
from torch_pjrt.traces.source import INDENT, WIDTH, Source, header
from torch_pjrt.traces.types import type_of


def _function(
    module: fx.GraphModule, name: str, names: list[str] | None, source: Source, room: int = WIDTH - INDENT
) -> list[str]:
    body = Source(source, room)
    rename: dict[fx.Node, str] = {}
    used: set[str] = set()
    inputs = iter(names or [])
    for node in module.graph.nodes:
        new = next(inputs, node.name) if node.op == "placeholder" else node.name
        while new in used:
            new += "_"
        used.add(new)
        rename[node] = new

    def named(x: Any) -> Any:
        return fx.map_arg(x, lambda node: Ref(rename[node]))

    parameters = []
    for node in module.graph.nodes:
        example = node.meta.get("example_value", node.meta.get("val"))
        types = [(rename[node], type_of(example))] if isinstance(example, torch.Tensor) else []
        if node.op == "placeholder":
            parameters.append(rename[node])
            for given, text in types:
                body.comment(f'{given}: "{text}"')
        elif node.op == "output":
            body.line("return " + body.value(named(node.args[0])))
        elif node.op == "get_attr":
            value: Any = operator.attrgetter(node.target)(module)
            have = body.name_object(value, rename[node])
            if have != rename[node]:
                body.lines.append(f"{rename[node]} = {have}")
            if isinstance(value, fx.GraphModule):
                body.lines += [
                    "",
                    *("# " + line for line in _function(value, rename[node], None, source, room - 6) if line),
                ]
        else:
            body.at(node.meta.get("stack_trace"))
            args, kwargs = named(node.args), named(node.kwargs)
            if node.op == "call_method":
                text = body.call(f"{body.value(args[0])}.{node.target}", args[1:], kwargs)
            else:
                text = body.call(body.target(node.target), args, kwargs)
            body.line(f"{rename[node]} = {text}", types)
    return [*header(name, parameters), *(f"    {line}" if line else "" for line in body.lines)]


def as_written(module: fx.GraphModule, names: list[str], source: Source, name: str = "as_written") -> None:
    source.lines = _function(module, name, names, source)
