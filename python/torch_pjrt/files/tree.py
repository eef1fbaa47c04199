"""Arguments and results in any structure, as JSON: no pickle.

A structure is ``{"tensor": i}``, ``{"value": …}`` (a number, a string, a bool or None that the program is for),
``{"list": […]}``, ``{"tuple": […]}``, ``{"dict": [[key, …], …]}`` or ``{"namedtuple": name, "fields": {…}}``. Mappings
of other classes (transformers' outputs) and dataclasses are dicts when they are loaded.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

Json = dict[str, Any]


def encode(value: Any, what: str, tensors: list[tuple[str, torch.Tensor]], path: str = "") -> Json:
    """The structure; its tensors are added to the list, each with a name made of where it is.

    Args:
        what: how an error calls the whole.

    Raises:
        TypeError: something is neither a tensor nor plain data.
    """

    def inner(part: Any, key: Any) -> Json:
        return encode(part, what, tensors, f"{path}.{key}" if path else str(key))

    if isinstance(value, torch.Tensor):
        tensors.append((path, value))
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = {key: inner(part, key) for key, part in zip(value._fields, value, strict=True)}
        return {"namedtuple": type(value).__name__, "fields": fields}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [inner(part, i) for i, part in enumerate(value)]}
    if isinstance(value, Mapping):
        entries = []
        for key, part in value.items():
            if not isinstance(key, (str, int)):
                raise TypeError(f"{what}: a dict has the key {key!r}; a program's file has strings and integers")
            entries.append([key, inner(part, key)])
        return {"dict": entries}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {"dict": [[name, inner(getattr(value, name), name)] for name in names]}
    where = f" at '{path}'" if path else ""
    raise TypeError(
        f"{what}: a {type(value).__name__}{where} is neither a tensor nor plain data, and can't be in a file"
    )


def decode(tree: Json, tensors: list[Any]) -> Any:
    """The structure with these tensors in it."""
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    if "value" in tree:
        return tree["value"]
    if "namedtuple" in tree:
        kind = collections.namedtuple(tree["namedtuple"], list(tree["fields"]))  # type: ignore[misc]
        return kind(*(decode(part, tensors) for part in tree["fields"].values()))
    if "dict" in tree:
        return {key: decode(part, tensors) for key, part in tree["dict"]}
    parts = [decode(part, tensors) for part in _items(tree)]
    return parts if "list" in tree else tuple(parts)


def _items(tree: Json) -> list[Json]:
    found: list[Json] = tree["list"] if "list" in tree else tree["tuple"]
    return found


def flatten(tree: Json, value: Any, fail: Callable[[str], Exception], path: str = "") -> list[Any]:
    """The tensors of a value that has this structure, in its order.

    Raises:
        Exception: what ``fail`` makes of the difference.
    """
    where = f"'{path}'" if path else "the arguments"

    def inner(parts: Any, values: Any) -> list[Any]:
        found: list[Any] = []
        for (key, part), each in zip(parts, values, strict=True):
            found += flatten(part, each, fail, f"{path}.{key}" if path else str(key))
        return found

    if "tensor" in tree:
        return [value]
    if "value" in tree:
        if value != tree["value"] or type(value) is not type(tree["value"]):
            raise fail(f"{where} is {value!r}, and the program is for {tree['value']!r}")
        return []
    if "dict" in tree:
        if not isinstance(value, Mapping):
            raise fail(f"{where} is a {type(value).__name__}, expected a dict")
        keys = [key for key, _ in tree["dict"]]
        missing = [str(key) for key in keys if key not in value]
        extra = [str(key) for key in value if key not in keys]
        if missing or extra:
            told = [f"{', '.join(names)} {verb}" for names, verb in ((missing, "is missing"), (extra, "is not taken"))
                    if names]  # fmt: skip
            raise fail(f"{where}: {'; '.join(told)}")
        return inner(tree["dict"], [value[key] for key in keys])
    parts = list(tree["fields"].items() if "fields" in tree else enumerate(_items(tree)))
    if not isinstance(value, (list, tuple)) or len(value) != len(parts):
        got = f"{len(value)} items" if isinstance(value, (list, tuple)) else f"a {type(value).__name__}"
        raise fail(f"{where}: expected {len(parts)} items, got {got}")
    return inner(parts, value)
