"""sentence-transformers: the device of a model that is given none."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.libraries.choice import tell
from torch_pjrt.libraries.words import around, of_this_device


def _environment(module: ModuleType) -> None:
    of_this_device(module.get_device_name)

    def told(inner: Any) -> Any:
        def get_device_name() -> str:
            name: str = inner()
            if name.startswith("pjrt"):
                tell("sentence_transformers")
            return name

        return get_device_name

    around(module, "get_device_name", told)


def install(package: str) -> None:
    after_import(f"{package}.util.environment", _environment)
