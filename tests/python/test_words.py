"""Sentences of comments name their subject, words are the field's, and every public name documents itself.

A sentence that begins with "Of", "The same", "Those", "What" or "As" has its subject elsewhere: it reads as translated.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

import torch_pjrt
import torch_pjrt.distributed
from torch_pjrt import files, kernels, plugins, report, traces

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "include", "python", "tests", "bench", "models", "zoo", "examples", "tools", "cmake")
OTHERS = "python/torch_pjrt/include/"  # XLA's headers, unchanged
PACKAGE = ROOT / "python/torch_pjrt"

WORDS = r"(Of|The same|Those|What|As)\b"
# A sentence begins with the text, after a blank line, or after a mark and one space.
BEGINNING = re.compile(rf"(?:^|\n\s*\n\s*|(?<=[.:;!?] )){WORDS}")
# A comment of C++ that stands alone, or follows code without a string that has slashes.
CPP_COMMENT = re.compile(r'^(?P<code>\s*|[^"]*?|(?:[^"]*"(?:[^"\\]|\\.)*")+[^"]*?)//+ ?(?P<text>.*)$')

Text = tuple[int, str]  # the number of its first line, and the text without markers


def joined(lines: list[tuple[int, str, bool]]) -> Iterator[Text]:
    """Joins the lines of comments (number, text, whether it stands alone) that form one text."""
    first, text, last = 0, "", -1
    for number, line, is_alone in lines:
        if is_alone and number == last + 1:
            text += f" {line.strip()}" if line.strip() else "\n\n"
        else:
            yield first, text
            first, text = number, line.strip()
        last = number if is_alone else -1
    yield first, text


def texts_of_python(source: str) -> Iterator[Text]:
    """Yields the comments and the docstrings, those of attributes included."""
    rows = source.splitlines()
    comments = (t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT)
    yield from joined([(t.start[0], t.string[1:], not rows[t.start[0] - 1][: t.start[1]].strip()) for t in comments])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, re.sub(r"(?<!\n)\n[ \t]*(?=\S)", " ", node.value.value.strip())


def texts_of_cpp(source: str) -> Iterator[Text]:
    lines = ((i, line) for i, line in enumerate(source.splitlines(), 1) if "//" in line)
    found = ((i, CPP_COMMENT.match(line)) for i, line in lines)
    yield from joined([(i, match["text"], not match["code"].strip()) for i, match in found if match])


def sentences(path: str, source: str) -> list[str]:
    """Returns path, line and beginning of each sentence that doesn't name its subject."""
    if not re.search(WORDS, source):
        return []
    texts = texts_of_python(source) if path.endswith(".py") else texts_of_cpp(source)
    return [
        f"{path}:{line}: {text[match.start(1) : match.start(1) + 60]}"
        for line, text in texts
        for match in BEGINNING.finditer(text)
    ]


def test_sentences_name_their_subject() -> None:
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [path for path in listed.split() if Path(path).suffix in {".py", ".cpp", ".h", ".c", ".cu"}]
    sources = {
        path: (ROOT / path).read_text() for path in paths if not path.startswith(OTHERS) and (ROOT / path).exists()
    }
    assert len(sources) > 1000
    found = [sentence for path, source in sources.items() for sentence in sentences(path, source)]
    folders = Counter("/".join(sentence.split("/")[:2]) for sentence in found)
    assert found == [], f"{dict(folders)}: begin with the subject, then the verb"


def test_what_the_check_finds() -> None:
    python = '"""Adds.\n\nOf two numbers\nthe sum. As ever."""\nx = 1  # What it is\n# One\n# As a part of a sentence\n'
    assert sentences("a.py", python) == [
        "a.py:5: What it is", "a.py:1: Of two numbers the sum. As ever.", "a.py:1: As ever.",
    ]  # fmt: skip
    cpp = 'int a;  // The same\n// A sum\n// What follows belongs to it. Those don\'t.\ncall("// As text");\n'
    assert sentences("a.cpp", cpp) == ["a.cpp:1: The same", "a.cpp:2: Those don't."]


# Home-made words and the field's. Each pattern is of names and phrases that have no other sense.
HOME_MADE = {
    r"(?i)(?<![a-z])tapes?(?![a-z])": "graph fingerprint",
    r"\bMetGraph|\bmet graphs?\b|_unmet\b": "graph profile, execution count",
    r"\bkTurn[A-Z]|\bin_turns\b|\bMOST_TURNS\b|\bits turn comes\b": "tier decision, iteration",
    r"(?i)(?<![a-z])by[ _]calls\b|\bCallsBy\b": "interpreted",
    r"\b(is|set)_paid\b|(?i:\bpurchases?\b)|\bpaid for (its|their) compile": "amortized, compile budget",
    r"\bstruct Coming\b|<Coming>": "pending compile",
    r"\bAtOnce\b|\b(may_)?run_at_once\b|\b[Ss]tretch(es)?\b|_stretch(es)?\b": "eager fast path, interval between reads",
    r"\bend_round|\brounds? of a loop\b": "iteration",
    r"\bfind_repeats\b|Note \[Repeats\]": "loop rerolling",
    r"\bForms\b|\bCpuForms\b|\b(Stack|Variant|Argument)Form\b|(?i:growing (graph|shape)s)": "dynamic shapes, specs",
    r"(?i)bookkeeping": "host-side integer ops",
    r"(?i)\bpartners?\b|partner_|_partner": "functional variant",
    r"\bgraph::Number\b|\bKind::kNumber|\bkNumberList\b|\b(Lowered|Plain|Packed)Numbers?\b": "scalar",
    r"\bgraph::Cell\b|->cell\b": "storage slot",
    r"\bRequirement(s|List|Order)?\b|\bProgramRequirement\b|_requirements\b": "runtime assertion",
    r"(?i)\bagreements?\b|AgreementFlow": "replication analysis",
    r"\bmeanings\b": "composites",
    r"\bPlaced\b": "output forwarding",
    r"\bimages_(lie|last)|_of_images\b": "NHWC layout",
    r"\bis_turned\b|\b[ab]_turned\b|\bkTurned\b|_lies?_|\blies?_|_lies?\b": "transposed, layout",
    r"\bfew_rows\b": "skinny GEMM",
    r"\bBoundPack\b|\bstruct Pack\b|Note \[Packs\]": "flattened state",
    r"\btold\b(?=( =|[.\[(),]))|_told\b|\btold_|\bTeller\b|\btell_|_tell\b": "reported",
    r"_the_librarys\b|\bis_nobodys\b|Note \[Whose": "dispatch, uses_library",
    r"(?i)\bdoors?\b|_doors?\b": "entry point",
}  # fmt: skip
TEXTS = {".py", ".pyi", ".cpp", ".h", ".c", ".cu", ".md", ".txt", ".toml", ".cmake"}
# The history, this table, and names of StableHLO's.
NOT_OURS = ("CHANGELOG.md", "tests/python/test_words.py", "python/torch_pjrt/jax/_compat.py", OTHERS, "zoo/")


def test_the_fields_words() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [path for path in listed.split("\n") if Path(path).suffix in TEXTS and not path.startswith(NOT_OURS)]
    texts = {path: (ROOT / path).read_text(errors="replace") for path in paths if (ROOT / path).is_file()}
    found = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: '{match[0]}' is called {word}"
        for pattern, word in HOME_MADE.items()
        for path, text in texts.items()
        for match in re.finditer(pattern, f"{path}\n{text}")
    ]
    assert found == [], f"{len(found)} home-made words"


def test_public_names_have_examples() -> None:
    docs = {name: getattr(torch_pjrt, name).__doc__ or "" for name in torch_pjrt.__all__}
    lacking = [name for name, text in docs.items() if f"torch_pjrt.{name}" not in text]
    assert lacking == [], "a docstring says what it does, its shapes and errors, and has a line of example"
    ours = {name for name, value in vars(torch_pjrt).items() if getattr(value, "__module__", "") == "torch_pjrt"}
    assert {name for name in ours if not name.startswith("_")} <= set(docs), "__all__ has each public name"


def test_public_functions_have_docstrings() -> None:
    modules = (torch.pjrt, torch_pjrt.distributed, plugins, kernels, report, traces, files)
    public = [
        (module, name, value)
        for module in modules
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("torch_pjrt")
    ]
    members = [(cls, *m) for _, _, cls in public if isinstance(cls, type) for m in vars(cls).items() if m[0][0] != "_"]
    assert len(public) > 60
    lacking = [(scope.__name__, name) for scope, name, v in public + members if callable(v) and not v.__doc__]
    assert lacking == []
