"""Matches the arguments of a call to parameters, in one way for all entry points that name arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_pjrt.capture.finding import as_written

Parameter = inspect.Parameter
VARIADIC = inspect.Signature([Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)])


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature of a function or a module; ``(*args, **kwargs)`` if it has none, as PyTorch's builtins."""
    fn = as_written(fn)
    try:
        signature = inspect.signature(fn)
        if isinstance(fn, torch.nn.Module) and all(map(_is_variadic, signature.parameters.values())):
            return inspect.signature(fn.forward)
    except (TypeError, ValueError):
        return VARIADIC
    return signature


def _is_variadic(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def signature_of_exported(program: torch.export.ExportedProgram, module: torch.nn.Module) -> inspect.Signature:
    """Returns the signature of an ExportedProgram, whose ``module()`` takes arguments by position and by keyword as the
    examples were given, but has no signature that says so."""
    positional, by_keyword = program.call_spec.in_spec.children()
    names = list(inspect.signature(module.forward).parameters)[: positional.num_children]
    if len(names) < positional.num_children:
        return VARIADIC
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    return inspect.Signature(parameters + [Parameter(name, Parameter.KEYWORD_ONLY) for name in by_keyword.context])


def bind(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    """Returns the arguments of a call by parameter, without defaults.

    A decorator or a module's hook may make a function take more than its signature says. A call that doesn't match is
    bound to ``(*args, **kwargs)``, and the function itself raises.
    """
    try:
        return signature.bind(*args, **kwargs)
    except TypeError:
        return VARIADIC.bind(*args, **kwargs)


def takes_keyword(signature: inspect.Signature, args: Sequence[Any], name: str) -> bool:
    """Whether the parameter of this name can be given by keyword in addition to these positional arguments."""
    parameter = signature.parameters.get(name)
    if parameter is None or parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
        return False
    try:
        signature.bind_partial(*args, **{name: None})
    except TypeError:
        return False
    return True


def by_name(bound: inspect.BoundArguments) -> dict[tuple[Any, ...], Any]:
    """Returns the arguments of a bound call by parameter; variadic ones by parameter and index or keyword."""
    found: dict[tuple[Any, ...], Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is Parameter.VAR_POSITIONAL:
            found.update({(name, i): each for i, each in enumerate(value)})
        elif kind is Parameter.VAR_KEYWORD:
            found.update({(name, key): each for key, each in value.items()})
        else:
            found[name,] = value
    return found


def repeats(arguments: Sequence[Any]) -> tuple[int, ...]:
    """Returns for each argument the index of the first one that is the same object."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(each), i) for i, each in enumerate(arguments))


class Positional:
    """Puts the arguments of a call into the order of an example's, which were all given by position."""

    def __init__(self, fn: Callable[..., Any], examples: Sequence[Any], name: str) -> None:
        self.signature, self.name = signature_of(fn), name
        self.expected = list(by_name(bind(self.signature, examples, {})))

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Raises TypeError if the arguments are not those of the example."""
        if not kwargs:
            return args
        given = by_name(bind(self.signature, args, kwargs))
        if given.keys() != set(self.expected):
            reported = [", ".join(".".join(map(str, key)) for key in keys) for keys in (self.expected, given)]
            raise TypeError(f"{self.name}: expected the arguments {reported[0]}, got {reported[1]}")
        return tuple(given[key] for key in self.expected)
