"""docs/libraries.md says what the tests show."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from torch_pjrt.libraries.known import KNOWN

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("libraries_table", ROOT / "tools/libraries_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "libraries_table", module)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_the_tests(maker: ModuleType) -> None:
    text = maker.DOCUMENT.read_text()
    assert text == maker.written(text), "./dev python tools/libraries_table.py"
    for library in KNOWN:
        assert library.file in maker.known()


def test_ci_has_each_library(maker: ModuleType) -> None:
    """A missing one would be skipped, and nobody would see."""
    for library in KNOWN:
        assert importlib.metadata.version(library.wheel) == maker.pinned()[library.wheel]
