"""Each program of the documents runs by itself, as a user runs it, and prints the output shown below it."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import fresh

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
# Documents whose programs are followed by their output without a language. In others it is the output of other
# programs. A block of language "text" behind a program is its output in every document.
PRINTED = {"composites.md", "kernels.md", "traces.md"}


@dataclass
class Program:
    document: Path
    line: int
    text: str
    printed: list[str] = field(default_factory=list)  # lines

    def libraries(self) -> set[str]:
        nodes = [node for node in ast.walk(ast.parse(self.text)) if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        return {name.partition(".")[0] for name in names} | ({"jax"} if "torch_pjrt.jax" in names else set())


def programs() -> Iterator[Program]:
    for document in DOCUMENTS:
        text = document.read_text()
        last: Program | None = None
        for block in re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            if block[2] == "python":
                last = Program(document, text.count("\n", 0, block.start()) + 1, block[3])
                yield last
            elif last is not None and (block[2] == "text" or (not block[2] and document.name in PRINTED)):
                last.printed += block[3].splitlines()


PROGRAMS = list(programs())


def packed(text: str) -> str:
    text = re.sub(r"two_tensor\.py:\d+", "two_tensor.py", text)  # PyTorch's file, whose lines differ between versions
    return re.sub(r"[\s│┃]+", " ", text).strip()


def test_they_are_found() -> None:
    assert len(PROGRAMS) >= 20
    assert {program.document.name for program in PROGRAMS if program.printed} >= PRINTED


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: f"{p.document.name}:{p.line}")
def test_it_runs_by_itself(program: Program, server: fresh.Server, tmp_path: Path) -> None:
    for library in sorted(program.libraries()):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    if "source=SOURCE" in program.text and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler")
    (tmp_path / "guide.py").write_text(program.text)
    # The server's torch has not loaded the backend yet. The tests' settings are not the users'.
    start = f"import os, runpy, torch_pjrt; os.chdir({str(tmp_path)!r}); "
    run = start + "runpy.run_path('guide.py', None, '__main__')"
    settings = {"TORCH_PJRT_COMPILE": "auto", "COLUMNS": "200"}
    (result,) = server.run(fresh.Job(run, environment=settings))
    printed = packed(result.out.replace(f"{tmp_path}/", ""))
    missing = [line for line in map(packed, program.printed) if "…" not in line and line not in printed]
    assert missing == [], printed
    said = re.findall(r"^print\(.*\)  # (pjrt:\d)$", program.text, re.MULTILINE)
    assert [line for line in result.out.splitlines() if line.startswith("pjrt:")] == said


def test_the_first_program_of_the_guide(server: fresh.Server, tmp_path: Path) -> None:
    """It trains on the device, runs nothing on the host, and loads the model that it saved."""
    (program, *_) = (program for program in PROGRAMS if program.document.name == "device.md")
    check = "print(torch_pjrt.metrics()['host_fallbacks'], loss.device, torch.load('model.pt')['bias'].device)"
    start = f"import os, warnings\nos.chdir({str(tmp_path)!r})\nimport torch_pjrt\nwarnings.simplefilter('error')\n"
    (result,) = server.run(fresh.Job(start + program.text + check, environment={"TORCH_PJRT_COMPILE": "auto"}))
    assert result.out.endswith("{} pjrt:0 pjrt:0\n")


PREPARED = """\
import os
import torch, torch_pjrt
import numpy as np
os.chdir(FOLDER)
y = torch.ones(2, 3, device="pjrt") * 2
loss, model = y.sum(), torch.nn.Linear(128, 2).eval()
step = torch_pjrt.jit(torch.relu, (torch.ones(2, 3),), trace=True)
torch_pjrt.export(torch.relu, torch.ones(2, 3)).save("model.pjrt")
fast_gelu = lambda x, approximate: torch.nn.functional.gelu(x, approximate=approximate)
class Quantized(torch.Tensor): pass
quantized_mm = lambda self, mat2: self
"""


def test_the_examples_of_docstrings_run(server: fresh.Server, tmp_path: Path) -> None:
    """One line each, in double backquotes, on values that a reader would have."""
    import torch_pjrt

    texts = {name: inspect.getdoc(getattr(torch_pjrt, name)) or "" for name in torch_pjrt.__all__}
    examples = [
        (name, " ".join(code.split()))
        for name, text in texts.items()
        for code in re.findall(r"``(.+?)``", text, re.DOTALL)
        if re.match(rf"(with |\w+ = |print\()?torch_pjrt\.{name}\(", code)
    ]
    assert len(examples) >= 18
    source = PREPARED.replace("FOLDER", repr(str(tmp_path)))
    for name, line in examples:
        sizes = "8, 128" if name == "jit" else "2, 3"
        source += f"x = torch.ones({sizes})\nprint({name!r})\n{line}\n"
    (result,) = server.run(fresh.Job(source))
    assert [line for line in result.out.splitlines() if line in texts] == [name for name, _ in examples]
