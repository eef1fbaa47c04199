"""python/torch_pjrt/_C.pyi, by which mypy knows the C++ core, matches the bindings."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_stub_is_that_of_the_bindings(tmp_path: Path) -> None:
    pytest.importorskip("pybind11_stubgen")  # of requirements.lock, which TORCH_PJRT_VENV may not follow
    pinned = next(line for line in (ROOT / "requirements.lock").read_text().splitlines() if line.startswith("torch=="))
    if pinned != f"torch=={version('torch').split('+')[0]}":
        pytest.skip("another PyTorch has another pybind11, which may word signatures in another way")
    made = tmp_path / "_C.pyi"
    subprocess.run([sys.executable, ROOT / "tools/stub.py", made], check=True, cwd=ROOT)
    kept = ROOT / "python/torch_pjrt/_C.pyi"
    assert made.read_text() == kept.read_text(), "bindings have changed: ./dev stubs writes _C.pyi anew"


def test_bindings_have_docstrings() -> None:
    tree = ast.parse((ROOT / "python/torch_pjrt/_C.pyi").read_text())
    scopes = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    members = [
        (getattr(s, "name", "_C"), m) for s in scopes for m in s.body if isinstance(m, (ast.FunctionDef, ast.ClassDef))
    ]
    assert len(members) > 150
    lacking = [f"{scope}.{member.name}" for scope, member in members if not ast.get_docstring(member)]
    assert lacking == [], "a binding says what it returns or does, and when it raises"
