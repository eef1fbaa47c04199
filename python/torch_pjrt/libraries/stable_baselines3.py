"""stable-baselines3: ``device="auto"``."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from torch_pjrt.libraries import choice
from torch_pjrt.libraries.adaptation import Adaptation


def _utils(library: Adaptation, module: ModuleType) -> None:
    def ours_by_default(inner: Any) -> Any:
        def get_device(device: Any = "auto") -> Any:
            if device != "auto" or not choice.is_available():
                return inner(device)
            choice.announce("stable_baselines3")
            return choice.device()

        return get_device

    library.around(module, "get_device", ours_by_default)


def install(library: Adaptation, package: str) -> None:
    library.after_import(f"{package}.common.utils", _utils)
