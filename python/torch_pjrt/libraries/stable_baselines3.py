"""stable-baselines3: ``device="auto"``."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from torch_pjrt.adapt.after_import import after_import
from torch_pjrt.libraries import choice
from torch_pjrt.libraries.words import around


def _utils(module: ModuleType) -> None:
    def ours_by_default(inner: Any) -> Any:
        def get_device(device: Any = "auto") -> Any:
            if device != "auto" or not choice.is_available():
                return inner(device)
            choice.tell("stable_baselines3")
            return choice.device()

        return get_device

    around(module, "get_device", ours_by_default)


def install(package: str) -> None:
    after_import(f"{package}.common.utils", _utils)
