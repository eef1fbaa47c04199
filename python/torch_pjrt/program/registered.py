"""Classes that are structure to PyTorch (``torch.utils._pytree``), and caches of transformers, which it registers only
when it exports one."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

from torch.utils import _pytree as pytree

TRANSFORMERS = "transformers.exporters.exporter_dynamo"
DEVICE = re.compile(r'(?<="_t": "device", "s": )"[^"]*"')  # in the context of a cache


def is_registered(kind: type) -> bool:
    """Whether PyTorch takes instances apart. Registers a cache of transformers, whose own exporter says how."""
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
    """The class that is registered by a serialized type's name. None of a module is imported."""
    known: Any = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name)
    if known is None:
        module, _, kind = name.replace(":", ".").rpartition(".")
        known = getattr(sys.modules.get(module), kind, None)
        if not isinstance(known, type) or not is_registered(known):
            return None
    return known


def without_devices(context: str) -> str:
    """The context of a cache that is on any device."""
    return DEVICE.sub('"cpu"', context)
