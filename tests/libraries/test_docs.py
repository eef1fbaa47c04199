"""docs/libraries.md has the table that the tests make."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from types import ModuleType

import pytest

from tests.module_at import module_at
from torch_pjrt.libraries.known import KNOWN

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def maker() -> ModuleType:
    return module_at(ROOT / "tools/libraries_table.py", "libraries_table")


def test_the_table_is_the_tests(maker: ModuleType) -> None:
    text = maker.DOCUMENT.read_text()
    assert text == maker.written(text), "./dev python tools/libraries_table.py"
    for library in KNOWN:
        assert library.file in maker.known() | maker.tried()


def test_ci_has_each_library(maker: ModuleType) -> None:
    """Tests of a missing library would be skipped unnoticed."""
    for library in KNOWN:
        if library.file in maker.tried():
            continue
        assert importlib.metadata.version(library.wheel) == maker.pinned()[library.wheel]
