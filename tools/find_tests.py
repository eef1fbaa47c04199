"""Finds the test files that can have a test that pytest's -k EXPRESSION selects, without importing any.

Every name that -k matches is written somewhere: in the file's path or text, in another file of ours that it imports,
among PyTorch's OpInfo, or it is a document's. tests/python/test_find_tests.py checks that.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPORT = re.compile(r"^\s*from ((?:tests|models)[\w.]*) import ([\w, ]*)", re.MULTILINE)


@functools.cache
def op_info(site: str) -> str:
    folder = Path(site) / "torch" / "testing" / "_internal"
    files = [folder / "common_methods_invocations.py", *folder.glob("opinfo/**/*.py"), folder / "common_dtype.py"]
    return "\n".join(path.read_text() for path in files)


def imported(text: str) -> set[Path]:
    """Returns the files of ours that a text imports. A package stands for all its files, which may fill one table."""
    found: set[Path] = set()
    for base, names in IMPORT.findall(text):
        for dotted in (base, *(f"{base}.{name.split(' as ')[0].strip()}" for name in names.split(","))):
            place = ROOT.joinpath(*dotted.split("."))
            if place.with_suffix(".py").exists():
                found.add(place.with_suffix(".py"))
            elif place.is_dir() and dotted != "tests" and place.parent == ROOT:
                found.update(place.glob("*.py"))
    return found


def reported(path: Path, site: str) -> str:
    """Returns all text that may name a test of the file."""
    seen, todo = set(), [path]
    texts = [str(path.relative_to(ROOT))]
    while todo:
        file = todo.pop()
        if file not in seen:
            seen.add(file)
            texts.append(file.read_text())
            todo += imported(texts[-1])
    if "DOCUMENTS" in texts[1]:
        texts += [document.name for document in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))]
    if "each_way" in texts[1]:
        texts.append("interpreted, compiled")  # tests/conftest.py
    text = "\n".join(texts)
    return (text + op_info(site) if "op_db" in text else text).lower()


def find(expression: str, site: str) -> list[Path]:
    """Returns the test files to collect for -k EXPRESSION; none if all are to be collected. `site`: site-packages."""
    words = re.findall(r"[^\s()]+", expression.lower())
    if "not" in words:
        return []
    words = [word for word in words if word not in ("and", "or")]
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in tests if any(word in reported(path, site) for word in words)]


if __name__ == "__main__":
    print(*find(*sys.argv[1:]), sep="\n")
