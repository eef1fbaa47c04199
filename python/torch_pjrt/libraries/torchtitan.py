"""torchtitan in a world in one process: each rank's part of the vocabulary in the loss of tensor parallel."""

from __future__ import annotations

import builtins
from types import ModuleType
from typing import Any

import torch

from torch_pjrt.distributed.rank import PerRank
from torch_pjrt.libraries.adaptation import Adaptation


def _loss(library: Adaptation, module: ModuleType) -> None:
    def of_ranks(*values: Any, **options: Any) -> Any:
        """Python's min decides by a condition, which ranks don't have in common."""
        per_rank = any(isinstance(value, PerRank) for value in values)
        return torch.sym_min(*values) if per_rank else builtins.min(*values, **options)

    library.put(module, "min", of_ranks)


def install(library: Adaptation, package: str) -> None:
    library.after_import(f"{package}.components.loss", _loss)
