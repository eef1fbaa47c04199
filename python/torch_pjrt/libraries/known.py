"""The supported libraries. Versions aren't checked: a library is adapted if it has the known functions."""

from __future__ import annotations

import importlib
import importlib.util
import os
from dataclasses import dataclass

from torch_pjrt.adapt.after_import import before_import
from torch_pjrt.libraries import choice


@dataclass(frozen=True)
class Library:
    package: str  # the name to import
    file: str  # in this folder
    wheel: str  # the installed distribution


KNOWN = (
    Library("accelerate", "accelerate", "accelerate"),
    Library("transformers", "transformers", "transformers"),
    Library("lightning", "lightning", "lightning"),
    Library("pytorch_lightning", "lightning", "pytorch-lightning"),
    Library("lightning_fabric", "lightning", "pytorch-lightning"),
    Library("sentence_transformers", "sentence_transformers", "sentence-transformers"),
    Library("stable_baselines3", "stable_baselines3", "stable-baselines3"),
    Library("torchtitan", "torchtitan", "torchtitan"),
    Library("torchtune", "torchtune", "torchtune"),
)


def _start(library: Library) -> None:
    if not choice.is_ours() or importlib.util.find_spec(library.package) is None:
        return
    # Imported here, so that programs without these libraries don't import it.
    adaptation = importlib.import_module("torch_pjrt.libraries.adaptation")
    file = importlib.import_module(f"torch_pjrt.libraries.{library.file}")
    file.install(adaptation.of_wheel(library.wheel), library.package)


def install() -> None:
    if os.environ.get("TORCH_PJRT_AUTOSELECT") == "0":
        return
    for library in KNOWN:
        before_import(library.package, lambda library=library: _start(library))  # type: ignore[misc]
