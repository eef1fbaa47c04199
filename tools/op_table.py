"""Makes docs/ops.md, the table of how each op runs: ./dev ops writes it.

Every sample that PyTorch's OpInfo database has of an op is recorded, and its backward. Pending work is not run, so it
takes half a minute.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/ops.md"
START, END = "<!-- made by tools/op_table.py -->\n", "<!-- end -->"
sys.path.insert(0, str(ROOT))  # tests/
os.environ.setdefault("TORCH_PJRT_CACHE", "0")

import torch  # noqa: E402

from tests.ops.opinfo import OPS, UNSUPPORTED, on_device, samples, tensors  # noqa: E402
from tests.sparse.layouts import parts  # noqa: E402
from torch_pjrt import _C  # noqa: E402

WAYS = ("rule", "decomposition", "kernel", "host")  # a later one takes precedence
NONE = "–"


def bare(op: str) -> str:
    """Returns the usual name of ``aten::_linalg_svd.default``."""
    return op.partition("::")[2].partition(".")[0]


@dataclass
class Reported:
    """How the calls of one op, of one dtype, run: forward or backward."""

    by: dict[str, set[str]] = field(default_factory=dict)  # way -> ops
    why: dict[str, str] = field(default_factory=dict)  # op that ran on the host -> the reason
    refused: str = ""

    def add(self, results: Iterable[torch.Tensor], log: Iterable[dict[str, Any]]) -> None:
        for entry in log:
            if "reason" in entry:
                self.by.setdefault("host", set()).add(bare(entry["op"]))
                self.why[bare(entry["op"])] = entry["reason"]
        for op, way in _C.ways([part for x in results for part in parts(x) if part.device.type == "pjrt"]):
            self.by.setdefault(way, set()).add(bare(op))

    @property
    def way(self) -> str:
        return max(self.by, key=WAYS.index, default="view")

    def cell(self) -> str:
        if self.refused:
            return f"refused: {self.refused}"
        named = ", ".join(f"`{op}`" for op in sorted(self.by[self.way])) if self.way in ("kernel", "host") else ""
        return f"{self.way} {named}".strip()


def logged(call: Callable[[], Any], reported: Reported) -> Any:
    """Returns the call's result; None if it raises."""
    _C.start_log()
    try:
        result = call()
    except Exception as error:
        reported.refused = str(error).splitlines()[0][:80].replace("|", "\\|")
        result = None
    log = _C.take_log()
    _C.stop_log()
    reported.add(tensors(result), log)
    return result


def reports_of(name: str, dtype: torch.dtype) -> tuple[Reported, Reported | None]:
    """Records all samples of an op; returns forward and backward."""
    op = OPS[name]
    has_gradient = dtype.is_floating_point and op.supports_autograd
    forward, backward = Reported(), Reported()
    for sample in samples(op, dtype, sys.maxsize, has_gradient):
        moved = on_device(sample, name)
        result = logged(functools.partial(op.op, moved.input, *moved.args, **moved.kwargs), forward)
        if not has_gradient or result is None:
            continue

        def gradients(sample: Any = sample, moved: Any = moved, result: Any = result) -> Any:
            given = [x for x in tensors(sample.output_process_fn_grad(result)) if x.requires_grad]
            leaves = [x for x in tensors((moved.input, moved.args, moved.kwargs)) if x.requires_grad]
            if not given or not leaves:
                return None
            return torch.autograd.grad(given, leaves, [torch.ones_like(x) for x in given], allow_unused=True)

        logged(gradients, backward)
    return forward, backward if has_gradient else None


@dataclass
class Row:
    """An op: how it runs in float32, its backward, and in int64; None where PyTorch has no such kernel."""

    name: str
    cells: tuple[Reported | None, Reported | None, Reported | None]

    def line(self) -> str:
        if self.name in UNSUPPORTED:
            return f"| {self.name} | refused: {UNSUPPORTED[self.name]} | {NONE} | {NONE} |"
        return (
            "| " + " | ".join([self.name, *(reported.cell() if reported else NONE for reported in self.cells)]) + " |"
        )


def rows(names: Iterable[str]) -> Iterator[Row]:
    for name in names:
        reported: list[Reported | None] = []
        if name not in UNSUPPORTED:
            floats = OPS[name].supports_dtype(torch.float32, "cpu")
            reported += reports_of(name, torch.float32) if floats else (None, None)
            integers = OPS[name].supports_dtype(torch.int64, "cpu")
            reported.append(reports_of(name, torch.int64)[0] if integers else None)
        yield Row(name, (reported[0], reported[1], reported[2]) if reported else (None, None, None))


def share(cells: list[tuple[Reported | None, ...]]) -> str:
    """Returns how many of the ops run without the host."""
    present = [reported for reported in cells if reported[0] is not None]
    without = [
        reported for reported in present if not any(one and (one.way == "host" or one.refused) for one in reported)
    ]
    return f"{len(without)} of {len(present)} ({len(without) / len(present):.1%})"


def reasons(all_rows: list[Row]) -> Iterator[str]:
    why: dict[str, str] = {}
    ops: Counter[str] = Counter()
    for row in all_rows:
        for op in {op for reported in row.cells if reported for op in reported.why}:
            ops[op] += 1
        why |= {op: reason for reported in row.cells if reported for op, reason in reported.why.items()}
    if not ops:
        return
    yield from ("| on the host | of how many rows | why |", "| --- | --- | --- |")
    for op, count in sorted(ops.items(), key=lambda item: (-item[1], item[0])):
        yield f"| `{op}` | {count} | {why[op]} |"
    yield ""


def table(all_rows: list[Row]) -> str:
    floats = [row.cells[:2] for row in all_rows]
    integers = [row.cells[2:] for row in all_rows]
    lines = [
        f"Without the host: float32, forward and backward, {share(list(floats))}; int64 {share(list(integers))}.",
        "",
    ]
    lines += reasons(all_rows)
    lines += ["| op | float32 | its backward | int64 |", "| --- | --- | --- | --- |"]
    lines += [row.line() for row in all_rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(START)
    DOCUMENT.write_text(before + START + "\n" + table(list(rows(sorted(OPS)))) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
