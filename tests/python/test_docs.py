"""Claims of the documents about the code hold: links, paths, excerpts, titles of notes, environment variables."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
CODE = [
    p for folder in ("src", "python") for p in (ROOT / folder).rglob("*") if p.suffix in {".cpp", ".inc", ".h", ".py"}
]


def packed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_and_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if not (document.parent / link).exists()]
    paths = re.findall(r"`((?:src|tests|tools|python|bench|docs|examples)/[\w./]+)`", text)
    planned = {"src/kernels", "bench/out", "docs/gpu.json"}
    missing += [path for path in paths if not (ROOT / path).exists() and path not in planned]
    # ARCHITECTURE.md names a file of a room without src/.
    short = re.findall(r"`((?:pjrt|hlo|graph|ops|device|engine)/[\w/]+\.(?:h|cpp))`", text)
    missing += [path for path in short if not (ROOT / "src" / path).exists()]
    assert not missing


GUIDES = (
    "start", "device", "libraries", "sparse", "compile", "compile-step", "composites", "kernels", "files", "cpp",
    "distributed", "world", "jax", "explain", "traces",
)  # fmt: skip


@pytest.mark.parametrize("guide", GUIDES)
def test_guides_begin_with_a_program_and_end_with_their_limits(guide: str) -> None:
    text = (ROOT / f"docs/{guide}.md").read_text()
    beginning, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    assert re.search(r"^```(python|py|cpp)$", beginning, re.MULTILINE)
    assert sections[-1].startswith("Limits\n")


def test_excerpts_are_in_the_code() -> None:
    code = packed("\n".join(path.read_text() for path in CODE if path.suffix in {".cpp", ".inc"}))
    blocks = re.findall(r"^( *)```cpp\n(.*?)^ *```", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)
    excerpts = [packed(part) for _, block in blocks for part in textwrap.dedent(block).split("\n\n")]
    assert excerpts
    assert [excerpt for excerpt in excerpts if excerpt not in code] == []


def test_notes_have_a_text() -> None:
    code = "\n".join(path.read_text() for path in CODE)
    titled = set(re.findall(r"Note \[[^\]]+\]", (ROOT / "ARCHITECTURE.md").read_text()))
    named = set(re.findall(r"Note \[[^\]]+\]", code))
    assert titled == named, "each note is listed in ARCHITECTURE.md, and named where it holds in the code"


def test_every_environment_variable_is_listed() -> None:
    places = [*CODE, ROOT / "dev", ROOT / "CMakeLists.txt", *(ROOT / "cmake").iterdir()]
    places += [
        p for f in ("tests", "bench", "examples") for p in (ROOT / f).rglob("*") if p.suffix in {".cpp", ".h", ".py"}
    ]
    by_call = r"""(?:getenv\(|setenv\(|options_in\(|environ\.get\(|environ\[)\s*["'](\w+)["']"""
    read = by_call + r"|\bENV\{(\w+)\}|\b(TORCH_PJRT_[A-Z_]+)\b.*environ"
    found = {name for place in places for groups in re.findall(read, place.read_text()) for name in groups if name}
    found |= {"TORCH_PJRT_PLUGIN"}  # read through a constant of plugins.py
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", (ROOT / "docs/environment.md").read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"\w+", row)}
    assert found - listed == set()
    elsewhere = {"CXX", "TORCH_DEVICE_BACKEND_AUTOLOAD"}  # CMake's and PyTorch's own
    assert listed - found - elsewhere == set()
