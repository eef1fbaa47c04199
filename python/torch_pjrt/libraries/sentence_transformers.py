"""sentence-transformers: the default device of a model."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import torch

from torch_pjrt.libraries.adaptation import Adaptation
from torch_pjrt.libraries.choice import announce, is_available


def _environment(library: Adaptation, module: ModuleType) -> None:
    def else_ours(inner: Any) -> Any:
        def get_device_name() -> str:
            name: str = inner()
            if name != "cpu" or not is_available():
                return name
            announce("sentence_transformers")
            is_of_group = torch.distributed.is_available() and torch.distributed.is_initialized()
            index = int(os.environ.get("LOCAL_RANK", torch.distributed.get_rank() if is_of_group else 0))
            return f"pjrt:{index if index < torch.pjrt.device_count() else 0}"

        return get_device_name

    library.around(module, "get_device_name", else_ours)


def install(library: Adaptation, package: str) -> None:
    library.after_import(f"{package}.util.environment", _environment)
