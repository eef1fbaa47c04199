"""The parameters of an entry: a program in a file is called like its function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_pjrt.capture.binding import Parameter
from torch_pjrt.files import tree

MISSING = object()
VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def encode(
    bound: inspect.BoundArguments, what: str, tensors: list[tuple[str, torch.Tensor]]
) -> tuple[list[tree.Json], tree.Json]:
    """Returns the parameters of the bound call, and the structure of its arguments by parameter. Defaults are constants
    of the program, like arguments that aren't tensors; defaults that a file can't represent are left out.

    Arguments and errors are those of ``tree.encode``.
    """
    kinds = {name: parameter.kind for name, parameter in bound.signature.parameters.items()}
    given = set(bound.arguments)
    bound.apply_defaults()
    arguments = []
    for name, value in bound.arguments.items():
        is_flat = kinds[name] is Parameter.VAR_KEYWORD and not any(key in kinds for key in value)
        if name in given or _is_plain(value):
            arguments.append([name, tree.encode(value, what, tensors, "" if is_flat else name)])
    return [{"name": name, "kind": kind.name} for name, kind in kinds.items()], {"dict": arguments}


def _is_plain(default: Any) -> bool:
    found: list[tuple[str, torch.Tensor]] = []
    try:
        tree.encode(default, "a default", found)
    except TypeError:
        return False
    return not found


def flatten(
    form: tree.Json, args: Sequence[Any], kwargs: Mapping[str, Any], fail: Callable[[str], Exception]
) -> list[Any]:
    """Returns the tensors of a call of an entry with this ``tree``. Constants may be left out of the call.

    Raises:
        Exception: the result of ``fail`` for the reason why the call doesn't match the program.
    """
    kinds = {each["name"]: getattr(Parameter, each["kind"]) for each in form["parameters"]}
    signature = inspect.Signature(
        [
            Parameter(name, kind, default=Parameter.empty if kind in VARIADIC else MISSING)
            for name, kind in kinds.items()
        ]
    )
    try:
        given: dict[str, Any] = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise fail(str(error)) from None
    for name, structure in form["arguments"]["dict"]:
        if kinds[name] is Parameter.VAR_KEYWORD:
            given[name] = {**_constants(structure["dict"]), **given.get(name, {})}
    given = {**_constants(form["arguments"]["dict"]), **given}
    return tree.flatten(form["arguments"], given, fail)


def _constants(named: list[Any]) -> dict[str, Any]:
    return {name: tree.decode(structure, []) for name, structure in named if not tree.has_tensors(structure)}


def as_now(form: tree.Json) -> tree.Json:
    """Returns an entry's ``tree`` in the current format. Older files have positional names only, and keywords."""
    if "parameters" in form:
        return form
    rest, named = form["rest"], dict(form["arguments"]["dict"])
    parameters = [{"name": name, "kind": "POSITIONAL_OR_KEYWORD"} for name in form["positional"]]
    arguments = [[name, named.pop(name)] for name in form["positional"]]
    if rest is not None:
        parameters.append({"name": rest, "kind": "VAR_POSITIONAL"})
        arguments.append([rest, named.pop(rest, {"tuple": []})])
    keywords = "kwargs"
    while any(keywords == name for name, _ in arguments):
        keywords += "_"
    parameters.append({"name": keywords, "kind": "VAR_KEYWORD"})
    arguments.append([keywords, {"dict": [list(item) for item in named.items()]}])
    return {"parameters": parameters, "arguments": {"dict": arguments}}
