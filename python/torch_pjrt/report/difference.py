"""Differences between two graphs, for ``torch_pjrt.explain()``: the causes, without their consequences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any

# A description from the core (src/python/run_log.cpp): "calls", each with "op", "file", "line" and "fields" (name,
# kind, text, source), the types of the "arguments", the sources of the "results", and which are "reused".
Description = dict[str, Any]
Call = dict[str, Any]
Source = tuple[int, int]  # (call, index of its result), or (-1 - argument, 0)

LONGEST = 1000  # consecutive calls that are compared one by one; difflib takes quadratic time


@dataclass(frozen=True)
class Difference:
    """One property in which two graphs differ.

    ``kind`` defines ``before`` and ``after``: ``"shape"``, ``"dtype"``, ``"strides"`` of the op's argument ``what``;
    ``"number"`` or ``"attribute"``, its value; ``"op"``, the number of such calls; ``"operand"``, the value that it
    reads; ``"result"``, whether a tensor still holds the op's result; ``"in place"``, the number of results that may
    overwrite an argument of the graph. The line is the user's that first made such a call; ``""`` and 0 if it is
    unknown.
    """

    kind: str
    op: str
    file: str
    line: int
    what: str
    before: str
    after: str

    def __str__(self) -> str:
        of = f"{self.what} of {self.op}" if self.what and self.op else self.what or self.op
        place = f" ({self.file}:{self.line})" if self.file else ""
        return f"{self.kind}: {of}{place}: {self.before} → {self.after}"


def differences(before: Description, after: Description) -> list[Difference]:
    """Returns the differences of two graphs, the most important first; empty if only the order differs."""
    pairs, removed, added = aligned(before["calls"], after["calls"])
    found = [*in_fields(before, after, pairs), *in_ops(before["calls"], removed, after["calls"], added)]
    if not removed and not added:
        found += in_operands(before, after, pairs) if not found else []
        found += in_results(before, after, pairs)
    if not found and before["reused"] != after["reused"]:
        found.append(
            Difference("in place", "", "", 0, "results", str(len(before["reused"])), str(len(after["reused"])))
        )
    return list(dict.fromkeys(found))


def aligned(before: list[Call], after: list[Call]) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Returns pairs of calls of the same op in the same order, and the calls that only one of the graphs has."""
    a, b = [call["op"] for call in before], [call["op"] for call in after]
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
    rest = zip(reversed(a[start:]), reversed(b[start:]), strict=False)
    end = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], rest))
    inner_a, inner_b = a[start : len(a) - end], b[start : len(b) - end]
    pairs = [(i, i) for i in range(start)]
    if max(len(inner_a), len(inner_b)) <= LONGEST:
        for i, j, size in SequenceMatcher(None, inner_a, inner_b, autojunk=False).get_matching_blocks():
            pairs += [(start + i + k, start + j + k) for k in range(size)]
    pairs += [(len(a) - end + k, len(b) - end + k) for k in range(end)]
    known_a, known_b = {i for i, _ in pairs}, {j for _, j in pairs}
    return pairs, [i for i in range(len(a)) if i not in known_a], [j for j in range(len(b)) if j not in known_b]


def in_fields(before: Description, after: Description, pairs: list[tuple[int, int]]) -> Iterator[Difference]:
    """Yields differences of calls that both have; a difference of an operand belongs to the call that computes it."""
    changed: set[int] = set()  # calls of `after`
    for i, j in pairs:
        call, other = before["calls"][i], after["calls"][j]
        old = {name: (kind, text) for name, kind, text, _ in call["fields"]}
        own: list[Difference] = []
        inherited = False
        for name, kind, text, source in other["fields"]:
            if name not in old or old[name][1] == text or (old[name][0] == kind == "input"):
                continue
            if source is not None and source[0] in changed:
                inherited = True
                continue
            what = tensor_kind(old[name][1], text) if old[name][0] == kind == "tensor" else kind
            own.append(difference(what, other, name, old[name], (kind, text)))
        if own or inherited:
            changed.add(j)
        tensors = inherited or any(d.kind in ("shape", "dtype", "strides") for d in own)
        # Sizes among the attributes follow those of the operands.
        yield from (d for d in own if not (tensors and d.kind == "attribute"))


def difference(what: str, call: Call, name: str, old: tuple[str, str], new: tuple[str, str]) -> Difference:
    after = new[1]
    if new[0] in ("input", "pinned"):
        after += " (an input from now on)" if new[0] == "input" else " (each value is a program of its own)"
        what = "number"
    return Difference(what, call["op"], call["file"], call["line"], name, old[1], after)


def tensor_kind(before: str, after: str) -> str:
    """Returns which part of types such as "f32[2, 3]{1, 2}" differs."""
    (dtype_a, shape_a), (dtype_b, shape_b) = (re.findall(r"^(\w+)(\[[^]]*\])?", text)[0] for text in (before, after))
    return "dtype" if dtype_a != dtype_b else "shape" if shape_a != shape_b else "strides"


def in_ops(before: list[Call], removed: list[int], after: list[Call], added: list[int]) -> Iterator[Difference]:
    """Yields differences in the number of calls of an op at a line."""
    gone = Counter((before[i]["op"], before[i]["file"], before[i]["line"]) for i in removed)
    new = Counter((after[j]["op"], after[j]["file"], after[j]["line"]) for j in added)
    for op, file, line in dict.fromkeys([*new, *gone]):
        counts = gone[op, file, line], new[op, file, line]
        if counts[0] != counts[1]:
            yield Difference("op", op, file, line, "", *(f"{n} calls" if n != 1 else "1 call" for n in counts))


def in_operands(before: Description, after: Description, pairs: list[tuple[int, int]]) -> Iterator[Difference]:
    for i, j in pairs:
        call = after["calls"][j]
        for (_, _, _, source_a), (name, _, _, source_b) in zip(
            before["calls"][i]["fields"], call["fields"], strict=False
        ):
            if source_a != source_b and source_a and source_b:
                values = named(before, source_a), named(after, source_b)
                yield Difference("operand", call["op"], call["file"], call["line"], name, *values)


def in_results(before: Description, after: Description, pairs: list[tuple[int, int]]) -> Iterator[Difference]:
    """Yields values that a tensor holds afterwards in only one of the graphs."""
    moved = dict(pairs)
    held_a = {(moved.get(call, call), index): (call, index) for call, index in before["results"]}
    held_b = {(call, index) for call, index in after["results"]}
    for key in [key for key in (*held_b, *held_a) if (key in held_a) != (key in held_b)]:
        kept = ("not held", "held") if key in held_b else ("held", "not held")
        call: Call = after["calls"][key[0]] if key[0] >= 0 else {"op": "an argument", "file": "", "line": 0}
        yield Difference("result", call["op"], call["file"], call["line"], f"result {key[1]}", *kept)


def named(description: Description, source: Source) -> str:
    call, index = source
    if call < 0:
        return f"argument {-1 - call}, {description['arguments'][-1 - call]}"
    op, line = description["calls"][call]["op"], description["calls"][call]["line"]
    return f"result {index} of call {call}, {op}" + (f" in line {line}" if line else "")
