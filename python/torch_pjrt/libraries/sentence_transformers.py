"""sentence-transformers: the default device of a model."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from torch_pjrt.libraries.adaptation import Adaptation
from torch_pjrt.libraries.choice import tell


def _environment(library: Adaptation, module: ModuleType) -> None:
    library.of_this_device(module.get_device_name)

    def told(inner: Any) -> Any:
        def get_device_name() -> str:
            name: str = inner()
            if name.startswith("pjrt"):
                tell("sentence_transformers")
            return name

        return get_device_name

    library.around(module, "get_device_name", told)


def install(library: Adaptation, package: str) -> None:
    library.after_import(f"{package}.util.environment", _environment)
