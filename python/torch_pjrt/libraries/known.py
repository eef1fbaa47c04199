"""Which libraries are known here, in which versions."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from torch_pjrt.adapt.after_import import before_import
from torch_pjrt.libraries import choice


@dataclass(frozen=True)
class Library:
    package: str  # what is imported
    file: str  # in this folder
    wheel: str  # what is installed
    first: str  # the oldest and the newest version that the tests have passed with
    last: str


KNOWN = (
    Library("accelerate", "accelerate", "accelerate", "1.15", "1.15"),
    Library("transformers", "transformers", "transformers", "5.23", "5.24"),
    Library("lightning", "lightning", "lightning", "2.6", "2.6"),
    Library("pytorch_lightning", "lightning", "pytorch-lightning", "2.6", "2.6"),
    Library("lightning_fabric", "lightning", "pytorch-lightning", "2.6", "2.6"),
    Library("sentence_transformers", "sentence_transformers", "sentence-transformers", "6.2", "6.2"),
    Library("stable_baselines3", "stable_baselines3", "stable-baselines3", "2.9", "2.9"),
)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _start(library: Library) -> None:
    if not choice.is_ours():
        return
    try:
        version = importlib.metadata.version(library.wheel)
    except importlib.metadata.PackageNotFoundError:
        version = "?"
    if not _numbers(library.first) <= _numbers(version) <= _numbers(library.last):
        known = library.first if library.first == library.last else f"{library.first} to {library.last}"
        warnings.warn(
            f"torch_pjrt doesn't know {library.package} {version} (it knows {known}) and leaves it alone: it may not "
            "choose the device by itself. Name the device where the library takes one; TORCH_PJRT_LIBRARIES=0 silences "
            "this",
            stacklevel=2,
        )
        return
    install: Callable[[str], None] = importlib.import_module(f"torch_pjrt.libraries.{library.file}").install
    install(library.package)


def install() -> None:
    if os.environ.get("TORCH_PJRT_LIBRARIES") == "0":
        return
    for library in KNOWN:
        before_import(library.package, lambda library=library: _start(library))  # type: ignore[misc]
