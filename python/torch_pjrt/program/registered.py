"""Classes that PyTorch's pytrees know (``torch.utils._pytree``), and transformers' caches, which transformers registers
only for its own exports."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

from torch.utils import _pytree as pytree

TRANSFORMERS = "transformers.exporters.exporter_dynamo"
DEVICE = re.compile(r'(?<="_t": "device", "s": )"[^"]*"')  # in the serialized context of a cache


def is_registered(kind: type) -> bool:
    """Whether PyTorch flattens instances. Registers a cache of transformers with its exporter's functions."""
    if kind in pytree.SUPPORTED_NODES:
        return True
    if kind.__module__.partition(".")[0] != "transformers":
        return False
    try:
        exporter = importlib.import_module(TRANSFORMERS)
    except ImportError:
        return False
    if not exporter.is_cache_class(kind):
        return False
    exporter.register_pytree_node(kind)
    return True


def class_named(name: str) -> type | None:
    """Returns the class that is registered under a serialized type's name, or None. It imports no module."""
    known: Any = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name)
    if known is None:
        module, _, kind = name.replace(":", ".").rpartition(".")
        known = getattr(sys.modules.get(module), kind, None)
        if not isinstance(known, type) or not is_registered(known):
            return None
    return known


def on_device(context: str, device: str) -> str:
    """Returns the serialized context of a cache with its device replaced by this one."""
    return DEVICE.sub(f'"{device}"', context)


def put_on(spec: Any, device: str) -> None:
    """Changes the contexts of a structure so that the caches of transformers that it builds name this device."""
    if getattr(spec.type, "__module__", "").partition(".")[0] == "transformers":
        _put_on(spec.context, device)
    for child in spec.children():
        put_on(child, device)


def _put_on(context: Any, device: str) -> None:
    if isinstance(context, dict) and context.get("_t") == "device":
        context["s"] = device
    elif isinstance(context, (dict, list)):
        for part in context.values() if isinstance(context, dict) else context:
            _put_on(part, device)
