"""The dependencies of a wheel, for scikit-build-core: its torch is of the minor version that it was compiled against.

PyTorch's C++ interface changes with each minor version, so a wheel fits one. The sdist fits all that `settings` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any


def dynamic_metadata(field: str, settings: Mapping[str, Any], project: Mapping[str, Any]) -> list[str]:
    assert field == "dependencies", field
    major, minor = version("torch").split(".")[:2]
    return [f"torch=={major}.{minor}.*", *settings["others"]]


def dynamic_wheel(field: str, settings: Mapping[str, Any]) -> bool:
    """Returns True: a wheel built from the sdist may have other dependencies than the sdist names."""
    return True
