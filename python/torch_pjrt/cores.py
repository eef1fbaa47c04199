"""Chooses the C++ core for the running torch, whose C++ interface changes with each minor version: a wheel has one core
for each.

Each core is in its own folder, ``torch_2_13/_C.….so``, which becomes part of the package's path.
"""

from __future__ import annotations

from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent


def folders() -> list[str]:
    """Returns the folder of the core for the running torch; empty in a checkout, where the core is next to this file.

    Raises:
        ImportError: there are cores, but none for this torch.
    """
    major, minor = torch.__version__.split(".")[:2]
    found = {path.name: str(path) for path in HERE.glob("torch_[0-9]*_[0-9]*") if path.is_dir()}
    wanted = f"torch_{major}_{minor}"
    if found and wanted not in found:
        here = ", ".join(sorted(name.removeprefix("torch_").replace("_", ".") for name in found))
        raise ImportError(
            f"this torch_pjrt was built for torch {here}, and torch {torch.__version__} is installed: install one of "
            "those, or build torch_pjrt for it (pip install . in a checkout)"
        )
    return [found[wanted]] if found else []
