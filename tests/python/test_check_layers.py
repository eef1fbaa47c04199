"""``tools/check_layers.py`` refuses cycles of rooms and of files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"


@pytest.fixture
def checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Returns the checker, with an empty tree."""
    spec = importlib.util.spec_from_file_location("check_layers", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    write(tmp_path, {"python/torch_pjrt/__init__.py": ""})
    return module


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def said(checker: ModuleType, capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> list[str]:
    write(checker.ROOT, files)
    failed = checker.main()
    lines = capsys.readouterr().out.splitlines()
    assert failed == bool(lines)
    return lines


ASKED, KEPT = "python/torch_pjrt/composite_ops/asked.py", "python/torch_pjrt/composite_ops/kept.py"


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("from torch_pjrt.composite_ops.kept import install\n", 1),
        ("from torch_pjrt.composite_ops import kept\n", 1),
        ("import torch_pjrt.composite_ops.kept\n", 1),
        ("def use():\n    from torch_pjrt.composite_ops import kept\n\n    kept.install()\n", 2),
    ],
)
def test_a_circle_of_python_files(
    checker: ModuleType, capsys: pytest.CaptureFixture[str], asked: str, line: int
) -> None:
    kept = "from torch_pjrt.composite_ops.asked import made\n"
    assert said(checker, capsys, {ASKED: asked, KEPT: kept, "python/torch_pjrt/composite_ops/__init__.py": ""}) == [
        f"{ASKED}:{line}: {ASKED} knows {KEPT}, which knows {ASKED}, itself or by others: a circle of files",
        f"{KEPT}:1: {KEPT} knows {ASKED}, which knows {KEPT}, itself or by others: a circle of files",
    ]


def test_a_circle_by_a_third_file(checker: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    steps = "python/torch_pjrt/composite_ops/steps.py"
    files = {
        ASKED: "from torch_pjrt.composite_ops import kept\n",
        KEPT: "from torch_pjrt.composite_ops import steps\n",
        steps: "from torch_pjrt.composite_ops import asked\n",
    }
    lines = said(checker, capsys, files)
    assert [line.partition(":")[0] for line in lines] == [ASKED, KEPT, steps]
    assert all(line.endswith("a circle of files") for line in lines)


@pytest.mark.parametrize(
    "asked",
    [
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from torch_pjrt.composite_ops.kept import Kept\n",
        "from torch_pjrt import _C\n",
        "import kept\n",
    ],
)
def test_no_circle(checker: ModuleType, capsys: pytest.CaptureFixture[str], asked: str) -> None:
    assert said(checker, capsys, {ASKED: asked, KEPT: "from torch_pjrt.composite_ops.asked import made\n"}) == []


def test_a_circle_of_includes(checker: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "src/graph/node.h": '// A node.\n#include "graph/type.h"\n',
        "src/graph/type.h": '// A type.\n#include "graph/node.h"\n',
        "src/graph/node.cpp": '// A node.\n#include "graph/node.h"\n',
    }
    lines = said(checker, capsys, files)
    assert [line.partition(" ")[0] for line in lines] == ["src/graph/node.h:2:", "src/graph/type.h:2:"]
    assert all(line.endswith("a circle of files") for line in lines)


def test_a_circle_of_rooms(checker: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "src/graph/node.h": '// A node.\n#include "graph/fingerprint/walk.h"\n',
        "src/graph/fingerprint/walk.h": "// A walk.\n",
        "src/graph/fingerprint/fingerprint.h": '// A fingerprint.\n#include "graph/order.h"\n',
        "src/graph/order.h": "// An order.\n",
    }
    lines = said(checker, capsys, files)
    assert len(lines) == 2
    assert all(line.endswith("a circle of rooms") for line in lines)


@pytest.mark.parametrize("text", ["import torch_pjrt\n", "def run():\n    import torch_pjrt\n"])
def test_nobody_imports_the_top(checker: ModuleType, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (line,) = said(checker, capsys, {ASKED: text})
    assert line.endswith("torch_pjrt.composite_ops may not know torch_pjrt itself, which may import all")
