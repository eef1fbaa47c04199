"""Finds the tests nearest to the changes since a commit, the nearest first, for ./dev test --changed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from find_tests import imported

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.compile(r'aten::([a-z_0-9]+)|@(?:decomposition|composition|meta)\("([a-z_0-9]+)')
# Files with a test for each op, named after the op.
OF_EVERY_OP = [f"tests/ops/test_{name}.py" for name in ("opinfo", "layouts", "out", "out_dtypes", "strides", "dtypes")]
OF_EVERYTHING = ("tests/engine/tier/test_operands.py", "tests/device/test_views.py")


def changed(base: str) -> list[Path]:
    """Returns files that differ from the commit, committed or not, and those that git doesn't track yet."""
    found: list[str] = []
    for command in (["diff", "--name-only", base], ["ls-files", "--others", "--exclude-standard"]):
        found += subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [Path(path) for path in found if (ROOT / path).exists()]


def room_of(path: Path) -> Path | None:
    """Returns the folder of tests with the name of the file's room, or of the one around it; or None."""
    parts = path.parts[2:-1] if path.parts[:2] == ("python", "torch_pjrt") else path.parts[1:-1]
    if path.parts[0] not in ("src", "python", "tests"):
        return None
    for count in range(len(parts), 0, -1):
        room = ROOT.joinpath("tests", *parts[:count])
        if room.is_dir() and any(room.rglob("test_*.py")):
            return room
    return None


def tests_of(path: Path, tests: dict[Path, str]) -> list[Path]:
    """Returns the tests of a file, the nearest first."""
    place = ROOT / path
    if place in tests:
        return [place]
    stem = path.stem
    module = ".".join(path.with_suffix("").parts[1:]) if path.parts[0] == "python" else "\0"
    alike = [test for test in tests if re.search(rf"(^|_){re.escape(stem)}s?(_|$)", test.stem.removeprefix("test_"))]
    users = [test for test, text in tests.items() if module in text or path.name in text or place in imported(text)]
    room = room_of(path)
    return [*alike, *users, *(test for test in tests if room and room in test.parents)]


def find(paths: list[Path]) -> tuple[list[str], list[str]]:
    """Returns test files, and the ops whose tests in the files for every op should run."""
    tests = {test: test.read_text() for test in sorted((ROOT / "tests").rglob("test_*.py"))}
    files: dict[str, None] = {}
    ops: dict[str, None] = {}
    for path in sorted(paths, key=lambda path: path.parts[0] != "tests"):
        for test in tests_of(path, tests):
            file = str(test.relative_to(ROOT))
            if file not in OF_EVERY_OP or path.parts[0] == "tests":
                files[file] = None
        if path.parts[0] in ("src", "python") and path.suffix in (".cpp", ".py"):
            ops |= dict.fromkeys(a or b for a, b in NAMED.findall((ROOT / path).read_text()))
    if any(path.parts[0] in ("src", "python") for path in paths):
        files |= dict.fromkeys(OF_EVERYTHING)
    return list(files), sorted(op.strip("_") for op in ops)


if __name__ == "__main__":
    files, ops = find(changed(sys.argv[1]))
    print(" ".join(files))
    print(" or ".join(ops))
    print(" ".join(OF_EVERY_OP))
