"""``./dev test word`` leaves out only files that have no test of that name."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = sysconfig.get_path("purelib")


@pytest.fixture
def find_tests(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    yield __import__("find_tests")
    sys.modules.pop("find_tests")


def test_each_collected_name_is_found(find_tests, request: pytest.FixtureRequest) -> None:
    """Checks every collected test, which is all tests in a full run."""
    words = defaultdict(set)
    for item in request.session.items:
        words[item.path].update(re.findall(r"[a-z]\w+", item.name.lower()))
    missed = {}
    for path, names in words.items():
        reported = find_tests.reported(path, SITE)
        # pytest numbers the values that have no name of their own: "make0"
        unseen = {name for name in names if name.rstrip("0123456789") not in reported}
        if unseen:
            missed[str(path)] = sorted(unseen)[:5]
    assert missed == {}


def test_a_word_selects_its_files(find_tests) -> None:
    def found(expression: str) -> set[str]:
        return {str(path.relative_to(ROOT)) for path in find_tests.find(expression, SITE)}

    assert "tests/disk/test_disk_cache.py" in found("disk_cache")
    assert "tests/ops/test_opinfo.py" not in found("disk_cache")
    assert "tests/ops/test_opinfo.py" in found("linalg_vander"), "an op that only PyTorch's database names"
    assert "tests/dynamo/test_models.py" in found("squeezenet"), "a model that only the catalogue names"
    assert found("disk_cache") <= found("disk_cache or relu")
    assert found("relu and not disk_cache") == set(), "which tells nothing: all are collected"
