"""Kernels that are recorded, or have a text: ``function=``, ``stablehlo=`` and ``jax=``."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_pjrt.composite_ops.asked import forward_of
from torch_pjrt.kernels.call import Call
from torch_pjrt.program.tracing_scope import tracing

TENSOR = re.compile(r"tensor<(?:[^<>]|<[^<>]*>)*>")
NAME = re.compile(r'func\.func\s+(?:(?:public|private|nested)\s+)?@("[^"]+"|[\w.$-]+)')


def place_of(function: Any) -> str:
    """Returns the function's name and place: ``"fast_gelu (train.py:12)"``."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__).replace("<locals>.", "")
    return f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})" if code else name


class Function:
    """A torch function, recorded in place of the composite."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(f"register_kernel: function= is a function of tensors, not {function!r}")
        self.function = function
        self.label = place_of(function)

    def lower(self, call: Call) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
        def record(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
            args, named = arguments(call, tensors)
            try:
                with tracing(), torch.no_grad():
                    results = self.function(*args, **named)
            except Exception as error:
                raise RuntimeError(f"{self.label} for {call.place} raised {type(error).__name__}: {error}") from error
            given = list(results) if isinstance(results, (tuple, list)) else [results]
            if len(given) > len(call.results):  # a backward may return None for gradients that aren't asked for
                given = [one for one in given if one is not None]
            if wrong := [one for one in given if not isinstance(one, torch.Tensor)]:
                raise TypeError(f"{self.label} for {call.place} gives {type(wrong[0]).__name__}, and no tensor")
            return given

        return record


def arguments(call: Call, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments of a call of the function: the operands in order, and by name operands after a gap in the
    schema's order, scalars that vary (as tensors), and the attributes."""
    named = {key: value for key, value in call.attributes.items() if key != "operands"}
    names = call.attributes.get("operands", ())
    is_op = call.name.startswith("aten.") and forward_of(call.name) == call.name
    if not is_op or not names or any("." in name for name in names):
        return list(tensors), named
    _, op, overload = call.name.split(".")
    declared = getattr(getattr(torch.ops.aten, op), overload)._schema.arguments
    expected = [argument.name for argument in declared if "Tensor" in str(argument.type)]
    args: list[Any] = []
    for name, tensor in zip(names, tensors, strict=True):
        if len(args) < len(expected) and expected[len(args)] == name:
            args.append(tensor)
        else:
            named[name] = tensor
    return args, named


def text_for(call: Call, text: str | Callable[[Call], str], label: str) -> str:
    """Returns the user's text, or the result of the user's function for the call."""
    if isinstance(text, str):
        return text
    try:
        return text(call)
    except Exception as error:
        raise RuntimeError(f"{label} for {call.place} raised {type(error).__name__}: {error}") from error


class StableHlo:
    """A module's text, or a function that returns the text for a call."""

    def __init__(self, text: str | Callable[[Call], str]) -> None:
        if not isinstance(text, str) and not callable(text):
            raise TypeError("register_kernel: stablehlo= is a module's text, or a function of the call that gives it")
        self.text = text
        self.label = "StableHLO" if isinstance(text, str) else f"StableHLO of {place_of(text)}"

    def lower(self, call: Call) -> tuple[str, str]:
        return renamed(text_for(call, self.text, self.label), call, self.label)


class Jax:
    """A function of JAX arrays, lowered by JAX."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.label = f"JAX's {place_of(function)}"

    def lower(self, call: Call) -> tuple[str, str]:
        try:
            from torch_pjrt.jax import lowering
        except ImportError as error:
            raise RuntimeError(f"{self.label} for {call.place}: jax= needs the package jax ({error})") from error
        attributes = {key: value for key, value in call.attributes.items() if key != "operands"}
        try:
            text = lowering.module_of(self.function, call.operands, attributes, call.platform)
        except Exception as error:
            raise RuntimeError(f"{self.label} for {call.place} raised {type(error).__name__}: {error}") from error
        return renamed(text, call, self.label)


def renamed(text: str, call: Call, label: str) -> tuple[str, str]:
    """Returns the module's functions as private ones, with a hash of the text in their names, and the name of @main."""
    body = re.sub(r"^#loc.*$", "", text, flags=re.MULTILINE)
    body = re.sub(r"\s+loc\((?:[^()]|\([^()]*\))*\)", "", body).strip()
    if body.startswith("module"):
        body = body[body.index("func.func") : body.rindex("}")].rstrip() if "func.func" in body else ""
    names = [name.strip('"') for name in NAME.findall(body)]
    if "main" not in names:
        raise ValueError(f"{label} for {call.place}: the module has no @main that takes the operands")
    check_types(body, call, label)
    prefix = f"kernel.{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    body = NAME.sub(lambda m: f"func.func private @{m[1]}", body)
    for name in names:
        body = re.sub(rf'@(?:{re.escape(name)}(?![\w.$-])|"{re.escape(name)}")', f'@"{prefix}.{name}"', body)
    return f"{prefix}.main", body + "\n"


def check_types(body: str, call: Call, label: str) -> None:
    """Raises if @main takes or returns other types than the composite."""
    start = body.index("(", re.search(r'@(?:main\b|"main")', body).end())  # type: ignore[union-attr]
    depth, end = 0, start
    for end in range(start, len(body)):
        depth += {"(": 1, ")": -1}.get(body[end], 0)
        if depth == 0:
            break
    taken = TENSOR.findall(re.sub(r"\{[^{}]*\}", "", body[start:end]))
    head = re.sub(r"\{[^{}\n]*\}", "", body[end + 1 :]).split("{")[0]
    given = TENSOR.findall(head.split("attributes")[0])
    for what, types, forms in (("takes", taken, call.operands), ("gives", given, call.results)):
        expected = [form.mlir for form in forms]
        if types != expected:
            raise TypeError(
                f"{label} for {call.place}: @main {what} ({', '.join(types)}), the composite {what} "
                f"({', '.join(expected)})"
            )
