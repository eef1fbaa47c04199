"""Arguments and results in any structure, as JSON without pickle.

- ``{"tensor": i}``
- ``{"value": …}``: a number, a string, a bool or None, a constant of the program; ``{"float": "inf"}``, which JSON
  lacks; ``{"complex": [1.0, 2.0]}``; ``{"torch": "float32"}``, a dtype or the like
- ``{"list": […]}``, ``{"tuple": […]}``, ``{"size": […]}`` (a ``torch.Size``), ``{"dict": [[key, …], …]}``
- ``{"namedtuple": name, "parts": [[key, …], …]}``; in older files ``"fields": {…}``
- ``{"class": name, "context": …, "parts": [[key, …], …]}`` for a class that PyTorch's pytrees know, with the name and
  the context that ``torch.export`` writes. The loader makes this class if it is registered, else a dict.

Mappings of other classes and dataclasses are loaded as dicts.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt.program.registered import class_named, is_registered, on_device

Json = dict[str, Any]
OF_TORCH = (torch.dtype, torch.layout, torch.memory_format)
LEAF: Json = {"type": None, "context": None, "children_spec": []}  # a leaf in the output of pytree.treespec_dumps


@dataclasses.dataclass
class Node:
    """One level of a structure."""

    tag: str
    keys: Sequence[Any]
    parts: list[Any]
    build: Callable[[list[Any]], Any]  # makes the same structure of other parts
    name: str = ""
    context: Any = None


def node_of(value: Any) -> Node | None:
    """Returns a value's level and its parts; None if it has no parts."""
    kind = type(value)
    if kind is torch.Size:
        return Node("size", range(len(value)), list(value), kind)
    if kind in (list, tuple):
        return Node(kind.__name__, range(len(value)), list(value), kind)
    is_plain = kind is dict or kind is collections.defaultdict  # a defaultdict's factory is not saved
    if not is_plain and is_registered(kind) and (node := _registered(value)):
        return node
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return Node("namedtuple", value._fields, list(value), lambda parts: kind(*parts), kind.__name__)
    if isinstance(value, (list, tuple)):
        return Node("list" if isinstance(value, list) else "tuple", range(len(value)), list(value), kind)
    if isinstance(value, Mapping):
        return Node("dict", list(value), list(value.values()), lambda parts: dict(zip(value, parts, strict=True)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return Node("dict", names, [getattr(value, name) for name in names], functools.partial(_with, value, names))
    return None


def _with(value: Any, names: list[str], parts: list[Any]) -> Any:
    made = copy.copy(value)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


def _registered(value: Any) -> Node | None:
    """Returns the node of a registered class; None if it has no serializable name or its context is not JSON."""

    def is_part(each: Any) -> bool:
        return each is not value

    parts, spec = pytree.tree_flatten(value, is_leaf=is_part)
    if type(value) in torch.return_types.all_return_types:
        name = f"torch.return_types.{type(value).__name__}"
        return Node("class", range(len(parts)), parts, type(value), name)
    try:
        form = json.loads(pytree.treespec_dumps(spec))[1]
    except (NotImplementedError, TypeError):
        return None
    try:
        keys = [_key(path[-1]) for path, _ in pytree.tree_leaves_with_path(value, is_leaf=is_part)]
    except ValueError:  # the class registers parts without keys
        keys = list(range(len(parts)))
    context = form["context"]
    context = on_device(context, "cpu") if isinstance(context, str) else context
    return Node("class", keys, parts, lambda parts: pytree.tree_unflatten(parts, spec), form["type"], context)


def _key(entry: Any) -> str | int:
    key = next((getattr(entry, name) for name in ("key", "idx", "name") if hasattr(entry, name)), str(entry))
    return key if isinstance(key, (str, int)) else str(key)


def constant(value: Any) -> Json | None:
    """Encodes a constant of the program; returns None if a file can't represent it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return {"torch": str(value).removeprefix("torch.")} if isinstance(value, OF_TORCH) else None


def encode(value: Any, what: str, tensors: list[tuple[str, torch.Tensor]], path: str = "") -> Json:
    """Encodes a structure, and appends its tensors to the list, each with a name made of its path.

    Args:
        what: the name of the whole in errors.

    Raises:
        TypeError: a leaf is neither a tensor nor plain data.
    """
    if isinstance(value, (torch.Tensor, torch.SymFloat)):  # SymFloat: a captured scalar, refused as a result
        tensors.append((path, value))
        return {"tensor": len(tensors) - 1}
    if (plain := constant(value)) is not None:
        return plain
    node = node_of(value)
    if node is None:
        where = f" at '{path}'" if path else ""
        raise TypeError(
            f"{what}: a {type(value).__name__}{where} is neither a tensor nor plain data, and can't be in a file. Give "
            "what it is made of, or register its class by torch.utils._pytree.register_pytree_node, with a "
            "serialized_type_name"
        )
    parts = []
    for key, part in zip(node.keys, node.parts, strict=True):
        if not isinstance(key, (str, int)):
            raise TypeError(f"{what}: a dict has the key {key!r}; a program's file has strings and integers")
        parts.append([key, encode(part, what, tensors, f"{path}.{key}" if path else str(key))])
    if node.tag == "class":
        return {"class": node.name, "context": node.context, "parts": parts}
    if node.tag == "namedtuple":
        return {"namedtuple": node.name, "parts": parts}
    return {node.tag: parts if node.tag == "dict" else [part for _, part in parts]}


def mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Returns the value with each leaf, a value without parts, replaced by ``leaf(each)``."""
    node = node_of(value)
    return leaf(value) if node is None else node.build([mapped(part, leaf) for part in node.parts])


def parts_of(tree: Json) -> list[tuple[Any, Json]]:
    """Returns the parts of a structure, with their keys."""
    if "fields" in tree:
        return list(tree["fields"].items())
    if (kind := _sequence(tree)) is not None:
        return list(enumerate(tree[kind.__name__.lower()]))
    return [(key, part) for key, part in tree.get("dict") or tree.get("parts") or []]


def _sequence(tree: Json) -> type[list[Any]] | type[tuple[Any, ...]] | None:
    return next((kind for kind in (list, tuple, torch.Size) if kind.__name__.lower() in tree), None)


def has_tensors(tree: Json) -> bool:
    return "tensor" in tree or any(has_tensors(part) for _, part in parts_of(tree))


def decode(tree: Json, tensors: Sequence[Any]) -> Any:
    """Returns the structure with these tensors."""
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    if "value" in tree:
        return tree["value"]
    if "float" in tree:
        return float(tree["float"])
    if "complex" in tree:
        return complex(*tree["complex"])
    if "torch" in tree:
        return getattr(torch, tree["torch"])
    keys = [key for key, _ in parts_of(tree)]
    parts = [decode(part, tensors) for _, part in parts_of(tree)]
    if "namedtuple" in tree:
        return collections.namedtuple(tree["namedtuple"], keys)(*parts)
    if (sequence := _sequence(tree)) is not None:
        return sequence(parts)
    kind = class_named(tree["class"]) if "class" in tree else None
    if kind is not None and kind in torch.return_types.all_return_types:
        return kind(parts)
    if kind is not None:
        context = tree["context"]
        if isinstance(context, str) and (device := next((t.device for t in tensors), None)) is not None:
            context = on_device(context, str(device))
        form = {"type": tree["class"], "context": context, "children_spec": [LEAF] * len(parts)}
        return pytree.tree_unflatten(parts, pytree.treespec_loads(json.dumps([1, form])))
    return dict(zip(keys, parts, strict=True))


def flatten(tree: Json, value: Any, fail: Callable[[str], Exception], path: str = "") -> list[Any]:
    """Returns the tensors of a value that has this structure, in its order.

    Raises:
        Exception: the result of ``fail`` for the difference.
    """
    where = f"'{path}'" if path else "the arguments"
    if "tensor" in tree:
        return [value]
    parts = parts_of(tree)
    if tree.keys() & {"value", "float", "complex", "torch"}:
        if json.dumps(constant(value)) != json.dumps(tree):
            raise fail(f"{where} is {value!r}, and the program is for {decode(tree, [])!r}")
        return []
    keys, node = [key for key, _ in parts], node_of(value)
    values = [] if node is None else node.parts
    if "class" in tree and node is not None and node.tag == "class":
        if (node.name, node.context, len(values)) != (tree["class"], tree["context"], len(parts)):
            raise fail(f"{where} is a {type(value).__name__} of another kind or size than the program is for")
    elif "dict" in tree or "class" in tree:
        if not isinstance(value, Mapping):
            raise fail(f"{where} is a {type(value).__name__}, expected a {tree.get('class', 'dict')}")
        missing = [str(key) for key in keys if key not in value]
        extra = [str(key) for key in value if key not in keys]
        if missing or extra:
            wrong = [f"{', '.join(names)} {verb}" for names, verb in ((missing, "is missing"), (extra, "is not taken"))
                    if names]  # fmt: skip
            raise fail(f"{where}: {'; '.join(wrong)}")
        values = [value[key] for key in keys]
    elif not isinstance(value, (list, tuple)) or len(value) != len(parts):
        got = f"{len(value)} items" if isinstance(value, (list, tuple)) else f"a {type(value).__name__}"
        raise fail(f"{where}: expected {len(parts)} items, got {got}")
    found: list[Any] = []
    for (key, part), each in zip(parts, values, strict=True):
        found += flatten(part, each, fail, f"{path}.{key}" if path else str(key))
    return found
