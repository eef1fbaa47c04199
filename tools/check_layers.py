"""Checks rules that no compiler checks: which code may include which, how large files and folders may be, naming.

Prints one line per violation, file:line: the problem and the cure. Exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 500
MAX_FILES = 20
OTHERS = ROOT / "python/torch_pjrt/include"  # XLA's headers, unchanged
GENERATED = ROOT / "python/torch_pjrt/_C.pyi"  # ./dev stubs writes it
CODE = {".cpp", ".h", ".c", ".py", ".pyi"}
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}

# From a group of rooms of src/, lowest first, to (the groups that it may include, the libraries that it may include).
# Rooms of one group, and of the groups named here, may include each other without cycles. ARCHITECTURE.md has the
# reasons.
ROWS: dict[str, tuple[set[str], set[str]]] = {
    "libc": (set(), set()),
    "linkage": (set(), set()),
    "pjrt": ({"linkage"}, {"pjrt"}),
    "hlo": (set(), set()),
    "disk": ({"pjrt", "hlo"}, set()),
    "file": (set(), set()),
    "runner": ({"pjrt", "hlo", "disk", "file"}, {"pjrt"}),
    "command": ({"runner"}, set()),
    "onednn": (set(), set()),
    "graph": (set(), {"torch"}),
    "kernels": ({"graph", "hlo", "pjrt"}, {"torch", "pjrt"}),
    "ops": ({"graph", "hlo", "kernels"}, {"torch"}),
    "device": ({"graph", "linkage"}, {"torch"}),
    "engine": ({"pjrt", "hlo", "disk", "file", "runner", "graph", "ops", "kernels", "device"}, {"torch", "pjrt"}),
    "python": (
        {"pjrt", "hlo", "disk", "file", "runner", "graph", "ops", "kernels", "device", "engine"},
        {"torch", "python"},
    ),
}
# From a folder of python/torch_pjrt to the others that it may import, even late. A file at the top is a room of its
# own. A file that is not here (__init__, registration, …) may import all, and nothing imports it.
PACKAGES: dict[str, set[str]] = {
    "errors": set(),
    "messages": set(),
    "plugins": set(),
    "decompositions": {"program"},
    "device": {"errors", "program"},
    "traces": {"errors", "program"},
    "program": {"errors"},
    "composite_ops": {"errors", "program", "decompositions"},
    "report": set(),
    "kernels": {"errors", "composite_ops", "program", "jax"},
    "capture": {"errors", "program", "device"},
    "dynamo": {"errors", "program", "device", "report", "decompositions", "composite_ops", "traces"},
    "files": {"errors", "program", "capture", "dynamo", "kernels", "composite_ops", "jax"},
    "adapt": {"device", "dynamo", "program", "messages"},
    "libraries": {"adapt", "distributed", "messages"},
    "distributed": {"adapt", "capture"},
    "jax": {"errors", "program", "capture"},
    "recorded": {"capture", "program"},
}

# Parts of JAX with stable names; the rest is for torch_pjrt/jax/_compat.py only.
LASTING = {"jax", "jax.numpy"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"(?P<ours>[^"]+)"|<(?P<theirs>[^>]+)>)')


def library(header: str) -> str | None:
    """Returns the library that a <header> belongs to; None for the standard library or the system."""
    if header.startswith(("torch/csrc/", "torch/python", "pybind11/")) or header == "Python.h":
        is_torch = header.startswith(("torch/csrc/autograd/", "torch/csrc/distributed/c10d/"))
        return "torch" if is_torch and "python" not in header else "python"
    if header.startswith(("torch/", "ATen/", "c10/")):
        return "torch"
    return "pjrt" if header.startswith("pjrt_c_api") else None


Arrows = dict[tuple[str, str], str]  # (room or file, one that it includes) -> file:line of the first place


def include_violations(path: Path, lines: list[str], arrows: Arrows, files: Arrows) -> Iterator[tuple[int, str]]:
    room = str(path.parent.relative_to(ROOT / "src"))
    row = room.split("/")[0]
    if row not in ROWS:
        yield 1, f"src/{row} is no room; say in tools/check_layers.py and ARCHITECTURE.md what it may include"
        return
    rows, libraries = ROWS[row]
    for number, line in enumerate(lines, 1):
        if not (match := INCLUDE.match(line)):
            continue
        if ours := match["ours"]:
            other = str(Path(ours).parent)
            files.setdefault((str(path.relative_to(ROOT)), f"src/{ours}"), f"{path.relative_to(ROOT)}:{number}")
            if not (ROOT / "src" / ours).exists():
                yield number, f'"{ours}" is not in src/; ours are named from src/, others in <>'
            elif other.split("/")[0] not in {row, *rows}:
                yield number, f"src/{room} may not know src/{other} (it knows {', '.join(sorted(rows)) or 'no other'})"
            elif other != room:
                arrows.setdefault((f"src/{room}", f"src/{other}"), f"{path.relative_to(ROOT)}:{number}")
        elif (name := library(match["theirs"])) and name not in libraries:
            yield number, f"src/{room} may not include {name}'s headers (<{match['theirs']}>)"


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yields imported names of the package, from its top: "device.streams"; "" is the package itself."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        if name.split(".")[0] == "torch_pjrt":
            yield name.removeprefix("torch_pjrt").removeprefix(".")


def file_of(name: str) -> Path | None:
    """Returns the file that an import of this name reads; None for a module in C++."""
    package = ROOT / "python/torch_pjrt"
    inner = package.joinpath(*name.split("."))
    for place in (inner, inner.parent):  # a module, or a name in one
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.exists() and file.is_relative_to(package):
                return file if name.split(".")[0] != "_C" else None
    return None


def only_for_types(tree: ast.AST) -> set[ast.AST]:
    """Returns the nodes under ``if TYPE_CHECKING:``."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {inner for block in blocks for statement in block.body for inner in ast.walk(statement)}


def import_violations(path: Path, text: str, arrows: Arrows, files: Arrows) -> Iterator[tuple[int, str]]:
    room = path.relative_to(ROOT / "python/torch_pjrt").parts[0].removesuffix(".py")
    package = ROOT / "python/torch_pjrt"
    if path.parent != package and room not in PACKAGES:
        yield 1, f"torch_pjrt/{room} is no room; say in tools/check_layers.py and ARCHITECTURE.md what it may import"
        return
    tree = ast.parse(text)
    for_types = only_for_types(tree)
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "a relative import; name the module from torch_pjrt"
        jax = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in jax:
            if name.split(".")[0] == "jax" and name not in LASTING and path.stem != "_compat":
                yield node.lineno, f"{name} may be renamed by JAX; torch_pjrt/jax/_compat.py alone imports it"
        for name in imported(node):
            if node not in for_types and (file := file_of(name)) and file != path:
                arrow = (str(path.relative_to(ROOT)), str(file.relative_to(ROOT)))
                files.setdefault(arrow, f"{path.relative_to(ROOT)}:{node.lineno}")
            other = name.split(".")[0]
            if not other:
                if room in PACKAGES:
                    yield node.lineno, f"torch_pjrt.{room} may not know torch_pjrt itself, which may import all"
                continue
            is_room = (package / other).is_dir() or (package / f"{other}.py").exists()
            if other in {room, "_C"} or not is_room or room not in PACKAGES:
                continue
            if other not in PACKAGES[room]:
                knows = ", ".join(sorted(PACKAGES[room])) or "no other"
                yield node.lineno, f"torch_pjrt.{room} may not know torch_pjrt.{other} (it knows {knows})"
            arrows.setdefault((f"torch_pjrt.{room}", f"torch_pjrt.{other}"), f"{path.relative_to(ROOT)}:{node.lineno}")


def violations(path: Path, arrows: Arrows, files: Arrows) -> Iterator[tuple[int, str]]:
    text = path.read_text()
    lines = text.splitlines()
    if len(lines) > MAX_LINES and path != GENERATED:
        yield MAX_LINES + 1, f"{len(lines)} lines; split it by concept (at most {MAX_LINES})"
    if path.stem in EMPTY_NAMES:
        yield 1, f"the name '{path.stem}' says nothing; name the file after the concept in it"
    if path.suffix in {".cpp", ".h"}:
        if not lines or not lines[0].startswith("//"):
            yield 1, "the first line says what the file is for"
        if path.is_relative_to(ROOT / "src"):
            yield from include_violations(path, lines, arrows, files)
    elif path.is_relative_to(ROOT / "python") and path.suffix == ".py":
        yield from import_violations(path, text, arrows, files)


def cycles(arrows: Arrows, what: str) -> Iterator[str]:
    """Yields one line for each arrow on a cycle of rooms or of files, with the place that makes it."""
    knows: dict[str, set[str]] = {}
    for room, other in arrows:
        knows.setdefault(room, set()).add(other)

    def reach(start: str) -> set[str]:
        found: set[str] = set()
        todo = [start]
        while todo:
            for other in knows.get(todo.pop(), set()) - found:
                found.add(other)
                todo.append(other)
        return found

    for (room, other), place in sorted(arrows.items()):
        if room in reach(other):
            yield f"{place}: {room} knows {other}, which knows {room}, itself or by others: a circle of {what}"


def main() -> int:
    folders = ["src", "python", "tests", "models", "bench", "examples", "tools", "zoo"]
    paths = [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in CODE and not p.is_relative_to(OTHERS)]
    found: list[str] = []
    arrows: Arrows = {}
    files: Arrows = {}  # includes imports within functions, but not those for types only
    for path in sorted(paths):
        found += [
            f"{path.relative_to(ROOT)}:{number}: {message}" for number, message in violations(path, arrows, files)
        ]
    for folder in sorted({path.parent for path in paths}):
        if (count := sum(path.parent == folder for path in paths)) > MAX_FILES:
            found.append(
                f"{folder.relative_to(ROOT)}: {count} files of code (at most {MAX_FILES}); split it by concept"
            )
    found += [*cycles(arrows, "rooms"), *cycles(files, "files")]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
