"""The classes of a trace that users see: stages, as text that can be run."""

from __future__ import annotations

import base64
import html
import itertools
import linecache
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch._logging import trace_structured

from torch_pjrt.traces.source import WIDTH, Source

_count = itertools.count()
_USER_LINE = re.compile(r"^\s*# (backward: )?\S+\.py:\d+ in ")
_FROM = re.compile(r"^\s*# \[\d+/\d+\]")
_COLORS = {"from": "33", "user": "34", "comment": "2"}
_STYLE = "<style>.pjrt .from{color:#b58900}.pjrt .user{color:#268bd2}.pjrt .comment{color:#888}</style>"


def _kind(line: str) -> str:
    if _FROM.match(line):
        return "from"
    return "user" if _USER_LINE.match(line) else "comment" if line.lstrip().startswith(("#", "//")) else ""


def _root_of(module: str) -> str | None:
    """Returns the folder that must be on ``sys.path`` to import a module that isn't installed."""
    top = sys.modules.get(module.partition(".")[0])
    file = getattr(top, "__file__", None) or next(iter(getattr(top, "__path__", [])), None)
    if file is None or "site-packages" in file or file.startswith(sys.base_prefix):
        return None
    path = Path(file)
    if path.name == "__init__.py":
        path = path.parent
    return str(path.parent.resolve())


class Trace:
    """One stage, which ``print`` shows. ``name`` is its function's; ``language`` is ``"python"`` or ``"mlir"``."""

    def __init__(self, stage: str, name: str, text: str, language: str = "python") -> None:
        self.stage, self.name, self.text, self.language = stage, name, text, language
        self.label = name
        self.objects: dict[str, Any] = {}
        self.imports: dict[str, str] = {}

    @classmethod
    def of(
        cls,
        stage: str,
        name: str,
        source: Source,
        prologue: Sequence[str] = (),
        label: str = "",
        about: str = "Made for these, and made anew for others:",
    ) -> Trace:
        head = [f"# {stage}", "import math, operator", "import torch"]
        head += [f"from {module} import {n}" for n, module in sorted(source.imports.items(), key=lambda i: i[::-1])]
        head.append("")
        notes = Source()
        if prologue:
            notes.comment(about)
            for line in prologue:
                notes.comment(line, 2)
        for n, value in source.objects.items():
            shown = repr(value).replace("\n", " ")
            notes.comment(f"{n}, an object of this process: {shown[: WIDTH - len(n) - 40]}")
        for n, text in source.contexts.items():
            notes.line(f"{n} = {text}")
        lines = [*head, *notes.lines, *([""] if notes.lines else []), "", *source.lines]
        made = cls(stage, name, "\n".join(lines) + "\n")
        made.label = label or name
        made.objects, made.imports = source.objects, source.imports
        return made

    def __str__(self) -> str:
        return self.colored() if sys.stdout.isatty() else self.text

    __repr__ = __str__

    def _check_python(self) -> None:
        if self.language != "python":
            raise TypeError(f"the stage '{self.stage}' is {self.language}, no Python")

    def python_callable(self) -> Callable[..., Any]:
        """Returns the function of the text, for stages in Python. Tracebacks show its lines.

        Raises:
            TypeError: the stage is in MLIR.
        """
        self._check_python()
        file = f"<torch_pjrt trace {next(_count)}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        space = dict(self.objects)
        exec(compile(self.text, file, "exec"), space)
        function: Callable[..., Any] = space[self.name]
        return function

    def save(self, path: str | Path) -> None:
        """Writes a file that another process can run or import.

        Raises:
            TypeError: it uses a class that a function or ``__main__`` defines, which another process can't import.
        """
        if self.language != "python":
            Path(path).write_text(self.text)
            return
        head = ["import base64", "import pickle", "import sys", ""]
        roots = {root for module in self.imports.values() if (root := _root_of(module))}
        head += [f"sys.path.insert(0, {root!r})" for root in sorted(roots)]
        loads = []
        for name, value in self.objects.items():
            try:
                data = base64.b64encode(pickle.dumps(value)).decode()
            except Exception as error:
                raise TypeError(
                    f"'{name}' can't be saved ({error}): define the class or the function at the top of a module"
                ) from None
            if isinstance(value, type) and value.__module__ == "__main__":
                raise TypeError(f"'{name}' can't be saved: it is defined in the script itself, not in a module")
            loads.append(f"{name} = pickle.loads(base64.b64decode({data!r}))")
        lines = self.text.splitlines()
        at = next(i for i, line in enumerate(lines) if line == "")
        Path(path).write_text("\n".join([*head, *lines[:at], "", *loads, *lines[at:]]) + "\n")

    def colored(self) -> str:
        """Returns the text with colors of a terminal."""
        lines = []
        for line in self.text.split("\n"):
            kind = _kind(line)
            code, mark, note = line.partition("  # ") if not kind else (line, "", "")
            if kind:
                code = f"\x1b[{_COLORS[kind]}m{line}\x1b[0m"
            lines.append(code + (f"\x1b[2m{mark}{note}\x1b[0m" if mark else ""))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = (f'<span class="{_kind(line)}">{html.escape(line)}</span>' for line in self.text.split("\n"))
        body = "\n".join(rows)
        head = f"{_STYLE}<details open class='pjrt'><summary>{html.escape(self.stage)}</summary>"
        return f"{head}<pre>{body}</pre></details>"


class Traces(list[Trace]):
    """The stages, in order; ``traces["forward"]`` finds one by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs = 0
        self.accounts: list[Any] = []

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def append(self, trace: Trace) -> None:
        """Adds a stage, and writes it to PyTorch's structured trace (TORCH_TRACE)."""
        super().append(trace)
        name = f"pjrt_{len(self)}_{trace.label}"
        trace_structured(
            "artifact", metadata_fn=lambda: {"name": name, "encoding": "string"}, payload_fn=lambda: trace.text
        )

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        found = next((trace for trace in self if trace.label == key), None)
        if found is None:
            raise KeyError(f"no stage '{key}'; there are {', '.join(trace.label for trace in self)}")
        return found

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def _repr_html_(self) -> str:
        return "".join(trace._repr_html_() for trace in self)
