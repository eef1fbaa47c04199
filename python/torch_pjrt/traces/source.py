"""Writes Python text: values, calls, the imports and objects that it needs, in lines of at most 100 columns."""

from __future__ import annotations

import dataclasses
import enum
import linecache
import math
import operator
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from torch_pjrt.program.stack import frame_of_user
from torch_pjrt.traces.events import Ref
from torch_pjrt.traces.types import number_of

WIDTH = 100
INDENT = 4


def place(stack: str | None) -> str:
    """Returns the user's line: ``model.py:12 in forward: y = x @ w``."""
    frame = frame_of_user(stack)
    if not frame:
        return ""
    line = linecache.getline(frame.file, frame.line).strip()
    text = f"{os.path.basename(frame.file)}:{frame.line} in {frame.function}: {line}"
    return text if len(text) <= WIDTH - 8 else text[: WIDTH - 9] + "…"


def importable(value: Any) -> tuple[str, str] | None:
    """Returns the module and the name by which another process can import the value, or None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name or module == "__main__":
        return None
    have: Any = sys.modules.get(module)
    for part in name.split("."):
        have = getattr(have, part, None)
    return (module, name) if have is value else None


class Source:
    """The lines of a function, and the names that they use."""

    def __init__(self, parent: Source | None = None, room: int = WIDTH - INDENT) -> None:
        self.lines: list[str] = []
        self.room = room
        self.objects: dict[str, Any] = parent.objects if parent else {}  # objects without an expression
        self.imports: dict[str, str] = parent.imports if parent else {}  # name -> module
        self.contexts: dict[str, str] = parent.contexts if parent else {}  # name -> expression
        self.home: torch.device | None = parent.home if parent else None  # the device that "pjrt" stands for
        self.said = ""

    def name_object(self, value: Any, hint: str) -> str:
        found = importable(value) if isinstance(value, type) or callable(value) else None
        if found:
            module = found[1].partition(".")[0]
            if self.imports.setdefault(module, found[0]) == found[0]:
                return found[1]
        for name, have in self.objects.items():
            if have is value:
                return name
        name, n = hint, 0
        while name in self.objects or name in self.imports:
            n += 1
            name = f"{hint}_{n}"
        self.objects[name] = value
        return name

    def context(self, value: Any) -> str:
        """Returns the expression of a subclass's context; long ones are assigned to a name."""
        text = self.value(value)
        if len(text) < 24:
            return text
        for name, have in self.contexts.items():
            if have == text:
                return name
        name = f"context_{len(self.contexts)}"
        self.contexts[name] = text
        return name

    def value(self, x: Any) -> str:
        if isinstance(x, (Ref, fx.Node)):
            return x.name
        if isinstance(x, enum.Enum) and importable(type(x)):
            return f"{self.name_object(type(x), type(x).__name__)}.{x.name}"
        if isinstance(x, float):
            return repr(x) if math.isfinite(x) else f"float('{x}')"
        if x is None or (isinstance(x, (bool, int, str, complex)) and not isinstance(x, torch.SymInt)):
            return repr(x)
        if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return repr(number_of(x))
        if isinstance(x, (torch.dtype, torch.layout, torch.memory_format)):
            return str(x)
        if isinstance(x, torch.device):
            return f"torch.device('{self.home if self.home is not None and x.type == 'pjrt' else x}')"
        if isinstance(x, torch.Size):
            return f"torch.Size({self.value(list(x))})"
        if isinstance(x, tuple) and hasattr(x, "_fields") and importable(type(x)):
            return self.made(x, x._fields)
        if dataclasses.is_dataclass(x) and not isinstance(x, type) and importable(type(x)):
            return self.made(x, [f.name for f in dataclasses.fields(x) if f.init])
        if type(x) is tuple:
            return "(" + ", ".join(map(self.value, x)) + ("," if len(x) == 1 else "") + ")"
        if isinstance(x, (list, tuple)):
            return "[" + ", ".join(map(self.value, x)) + "]"
        if isinstance(x, dict):
            return "{" + ", ".join(f"{self.value(k)}: {self.value(v)}" for k, v in x.items()) + "}"
        if isinstance(x, slice):
            return f"slice({self.value(x.start)}, {self.value(x.stop)}, {self.value(x.step)})"
        if isinstance(x, type):
            return self.name_object(x, x.__name__)
        return self.written(x) or self.name_object(x, "_" + type(x).__name__.lower())

    def written(self, x: Any) -> str:
        """Returns the repr of an object of an importable class if it evaluates to an equal object: ``Shard(dim=0)``."""
        cls: Any = type(x)
        text = repr(x)
        plain = re.fullmatch(rf"{re.escape(cls.__name__)}\([\w\s=.,'\[\]()-]*\)", text)
        if plain is None or cls.__eq__ is object.__eq__ or importable(cls) is None:
            return ""
        try:
            same = eval(text, {cls.__name__: cls}) == x
        except Exception:  # the repr is not an expression
            return ""
        return text if same is True and self.name_object(cls, cls.__name__) == cls.__name__ else ""

    def made(self, x: Any, names: Sequence[str]) -> str:
        fields = ", ".join(f"{name}={self.value(getattr(x, name))}" for name in names)
        return f"{self.name_object(type(x), type(x).__name__)}({fields})"

    def target(self, function: Any) -> str:
        if isinstance(function, torch._ops.OpOverload):
            return f"torch.ops.{function}"
        if isinstance(function, torch._ops.HigherOrderOperator):
            return f"torch.ops.higher_order.{function.name()}"
        try:
            name = fx.node._get_qualified_name(function).replace("_operator.", "operator.")
            if eval(name, {"torch": torch, "operator": operator, "math": math}) is function:
                return name
        except Exception:  # a function without such a name becomes an object
            pass
        return self.name_object(function, re.sub(r"\W", "_", getattr(function, "__name__", type(function).__name__)))

    def call(self, target: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        return f"{target}({', '.join([*map(self.value, args), *(f'{k}={self.value(v)}' for k, v in kwargs.items())])})"

    def at(self, stack: str | None, before: str = "") -> None:
        """Writes the user's line if it differs from the last one."""
        text = place(stack) and before + place(stack)
        if text and text != self.said:
            self.lines += ["", f"# {text if len(text) <= self.room - 2 else text[: self.room - 3] + '…'}"]
            self.said = text

    def line(self, text: str, types: Sequence[tuple[str, str]] = ()) -> None:
        """Writes a statement, with the types behind it if there is room, else below."""
        note = "  # " + ", ".join(f'{name}: "{type}"' for name, type in types) if types else ""
        if len(text) + len(note) <= self.room:
            self.lines.append(text + note)
            return
        self.lines += broken(text, self.room)
        for name, type in types:
            self.comment(f'{name}: "{type}"', INDENT)

    def comment(self, text: str, indent: int = 0) -> None:
        pad = " " * indent
        self.lines += textwrap.wrap(
            text, self.room, initial_indent=f"{pad}# ", subsequent_indent=f"{pad}#     ", break_on_hyphens=False,
        )  # fmt: skip


def _outermost(text: str) -> tuple[int, int, list[str]] | None:
    """Returns the longest bracketed part of an expression: its begin, its end, and the texts between its commas."""
    best: tuple[int, int, list[str]] | None = None
    depth, start, at, quote = 0, 0, 0, ""
    parts: list[str] = []
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote and text[i - 1] != "\\" else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
            if depth == 1:
                start, at, parts = i, i + 1, []
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                last = text[at:i].strip()
                found = (start, i, [*parts, last] if last else parts)
                if best is None or i - start > best[1] - best[0]:
                    best = found
        elif c == "," and depth == 1:
            parts.append(text[at:i].strip())
            at = i + 1
    return best


def header(name: str, parameters: Sequence[str]) -> list[str]:
    """Returns the lines of ``def name(parameters):``."""
    lines = broken(f"def {name}({', '.join(parameters)})", WIDTH - 1)
    lines[-1] += ":"
    return lines


def broken(text: str, room: int = WIDTH - INDENT) -> list[str]:
    """Breaks an expression into lines."""
    found = _outermost(text) if len(text) > room else None
    if found is None or not found[2]:
        return [text]
    start, end, parts = found
    lines, now = [text[: start + 1]], "   "
    for part in parts:
        inside = broken(part, room - INDENT - 1)
        if len(inside) > 1:
            lines += [now] if now.strip() else []
            lines += ["    " + line for line in inside]
            lines[-1] += ","
            now = "   "
            continue
        if len(now) + len(part) + 2 > room and now.strip():
            lines.append(now)
            now = "   "
        now += f" {part},"
    lines += [now] if now.strip() else []
    return [*lines, text[end:]]
