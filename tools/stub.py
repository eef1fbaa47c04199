#!/usr/bin/env python3
"""Writes the stub of torch_pjrt._C, as the bindings in src/python say it: tools/stub.py [file]."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "python/torch_pjrt/_C.pyi"
HEAD = "# The C++ core, bound in src/python. Made by ./dev stubs: change the bindings, not this.\n"


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pybind11_stubgen", "torch_pjrt._C", "--exit-code", "--output-dir", folder]
        subprocess.run(command, check=True, stderr=subprocess.PIPE)
        made = (Path(folder) / "torch_pjrt/_C.pyi").read_text()
    target.write_text(HEAD + made)
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    config = ["--quiet", "--config", str(ROOT / "pyproject.toml"), str(target)]
    subprocess.run([*ruff, "check", "--fix-only", *config], check=True)
    subprocess.run([*ruff, "format", *config], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT)
