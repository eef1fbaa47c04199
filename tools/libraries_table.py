"""Makes the table of docs/libraries.md from tests/libraries: ./dev python tools/libraries_table.py writes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/libraries.md"
START, END = "<!-- made by tools/libraries_table.py -->\n", "<!-- end -->"


def claims(path: Path) -> dict[str, str]:
    """Returns test -> its docstring, which says what works."""
    tests = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
    said = {test.name: ast.get_docstring(test) for test in tests if test.name.startswith("test_")}
    return {name: " ".join(text.split()) for name, text in said.items() if text}


def tried() -> dict[str, str]:
    """Returns library -> version with which its tests ran, for libraries that CI doesn't have."""
    for node in ast.parse((ROOT / "tests/libraries/test_others.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TRIED":
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    raise LookupError("tests/libraries/test_others.py has no TRIED")


def pinned() -> dict[str, str]:
    """Returns package -> version that CI installs."""
    lines = (ROOT / "requirements.lock").read_text().lower().replace("_", "-").splitlines()
    return dict(line.split(" ;")[0].split("==") for line in lines if "==" in line)  # without environment markers


def known() -> dict[str, str]:
    """Returns file of an adapted library that CI installs -> version with which its tests run."""
    call = r'Library\("(\w+)", "(\w+)", "([\w-]+)"\)'
    text = (ROOT / "python/torch_pjrt/libraries/known.py").read_text()
    own = {file: wheel for package, file, wheel in re.findall(call, text) if package == file}
    return {file: pinned()[wheel] for file, wheel in own.items() if wheel in pinned()}


def table() -> str:
    rows = ["| library | versions | what works | tests |", "| --- | --- | --- | --- |"]
    for name, versions in sorted(known().items()):
        said = " ".join(claims(ROOT / f"tests/libraries/test_{name}.py").values())
        rows.append(f"| {name.replace('_', '-')} | {versions} | {said} | in CI |")
    others = claims(ROOT / "tests/libraries/test_others.py")
    for name, version in sorted(tried().items()):
        rows.append(f"| {name.replace('_', '-')} | {version} | {others[f'test_{name}']} | by hand |")
    return "\n".join(rows) + "\n"


def written(text: str) -> str:
    """Returns the document with the table that the tests make."""
    before, _, rest = text.partition(START)
    return before + START + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text()))
