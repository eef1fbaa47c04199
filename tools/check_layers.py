"""Holds the rules that no compiler does: who may include whom, how long a file may be, and which names say nothing.

Prints one line a violation, as file:line: what is wrong and what to do. Exits with 1 when there is any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 600
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}

# room -> (the other rooms it may include, the libraries it may include). ARCHITECTURE.md has the reasons.
KNOWS: dict[str, tuple[set[str], set[str]]] = {
    "pjrt": (set(), {"pjrt"}),
    "hlo": (set(), set()),
    "graph": (set(), {"torch"}),
    "ops": ({"graph", "hlo"}, {"torch"}),
    "kernels": ({"graph", "hlo", "pjrt"}, {"torch", "pjrt"}),
    "device": ({"graph"}, {"torch"}),
    "engine": ({"pjrt", "hlo", "graph", "ops", "kernels", "device"}, {"torch", "pjrt"}),
    "python": ({"graph", "device", "engine"}, {"torch", "python"}),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"(?P<ours>[^"]+)"|<(?P<theirs>[^>]+)>)')


def library(header: str) -> str | None:
    """The library a <header> belongs to; None: the standard library or the system."""
    if header.startswith(("torch/csrc/", "torch/python", "pybind11/")) or header == "Python.h":
        return "python" if "python" in header or not header.startswith("torch/csrc/autograd/") else "torch"
    if header.startswith(("torch/", "ATen/", "c10/")):
        return "torch"
    return "pjrt" if header.startswith("pjrt_c_api") else None


def include_violations(path: Path, lines: list[str]) -> Iterator[tuple[int, str]]:
    room = path.relative_to(ROOT / "src").parts[0]
    if room not in KNOWS:
        yield 1, f"src/{room} is no room; say in tools/check_layers.py and ARCHITECTURE.md what it may include"
        return
    rooms, libraries = KNOWS[room]
    for number, line in enumerate(lines, 1):
        if not (match := INCLUDE.match(line)):
            continue
        if ours := match["ours"]:
            other = ours.split("/")[0]
            if not (ROOT / "src" / ours).exists():
                yield number, f'"{ours}" is not in src/; ours are named from src/, others in <>'
            elif other not in {room, *rooms}:
                yield number, f"src/{room} may not know src/{other} (it knows {', '.join(sorted(rooms)) or 'no other'})"
        elif (name := library(match["theirs"])) and name not in libraries:
            yield number, f"src/{room} may not include {name}'s headers (<{match['theirs']}>)"


def violations(path: Path) -> Iterator[tuple[int, str]]:
    lines = path.read_text().splitlines()
    if len(lines) > MAX_LINES:
        yield MAX_LINES + 1, f"{len(lines)} lines; split it by concept (at most {MAX_LINES})"
    if path.stem in EMPTY_NAMES:
        yield 1, f"the name '{path.stem}' says nothing; name the file after the concept in it"
    if path.suffix in {".cpp", ".h"}:
        if not lines or not lines[0].startswith("//"):
            yield 1, "the first line says what the file is for"
        if path.is_relative_to(ROOT / "src"):
            yield from include_violations(path, lines)


def main() -> int:
    folders = ["src", "python", "tests", "models", "bench", "examples", "tools"]
    paths = [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in {".cpp", ".h", ".py"}]
    found = 0
    for path in sorted(paths):
        for number, message in violations(path):
            print(f"{path.relative_to(ROOT)}:{number}: {message}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
