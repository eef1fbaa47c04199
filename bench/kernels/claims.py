"""Both sides of each row of the table of claims (src/ops/claims/claims.inc): XLA's time over that of the library.

A row is measured at its least work and at sixteen times that (a row that claims nothing by default: at 2^22), with one
thread, in processor time. A process for each side compiles the same function, one with TORCH_PJRT_LIBRARY_KERNELS=0,
and they are timed alternately. A row whose library doesn't run here, because the machine lacks what it needs or has
what it lacks, keeps its figures. TORCH_PJRT_BENCH_OPS names some of the rows' ops ("Product,Convolution").

The results are written to bench/out/claims.inc, a copy of the table with this machine's figures. Rows of files need
the library of oneDNN that `./dev bench deploy` builds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from machine import instruction_sets
from measure import Result, repeat_for, seconds

BENCH = Path(__file__).resolve().parent.parent
TABLE = BENCH.parent / "src/ops/claims/claims.inc"
ONEDNN = BENCH.parent / "build/program/libtorch_pjrt_onednn.so"
ROUNDS = 7
DTYPES = {
    "kF32": torch.float32, "kF64": torch.float64, "kBf16": torch.bfloat16, "kF16": torch.float16, "kS8": torch.int8,
    "kAll": torch.float32,
}  # fmt: skip
ROWS = {"kOneRow": 1, "kFewRows": 16, "kManyRows": 64, ".least_rows = 64": 64}
ROW = re.compile(
    r"\{Heavy::k(?P<op>\w+), (?P<dtypes>[\w |]+), (?P<needs>[\w |]+), (?P<lacks>[\w |]+), (?P<layouts>[\w |^]+), "
    r"(?P<least>[\w()]+)(?: \+ 1)?, Who::k(?P<who>\w+)(?:, (?P<limits>\w+|\{[^}]*\}))?\},\s*// (?P<note>.*)"
)


@dataclasses.dataclass
class Case:
    op: str
    dtype: str
    layouts: str
    limits: str
    work: int
    who: str
    by_default: bool

    @property
    def type(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def is_transposed(self) -> bool:
        return "Straight" not in self.layouts

    def drawn(self, *sizes: int) -> Tensor:
        return (
            torch.randint(-9, 9, sizes, dtype=torch.int8) if self.dtype == "kS8" else torch.randn(sizes).to(self.type)
        )


Call = tuple[Callable[..., object], list[Tensor]]


def even(size: float) -> int:
    """Returns a size of at least so much that libraries like: a multiple of 8."""
    return max(8, 8 * math.ceil(size / 8))


def product(case: Case) -> Call:
    if "SmallEach" in case.limits:  # batches of matrices
        a, b = (case.drawn(case.work >> 15, 32, 32) for _ in range(2))
        return lambda a, b: torch.bmm(a, b.mT), [a, b]
    rows = next((rows for name, rows in ROWS.items() if name in case.limits), 128)
    inner = even(math.sqrt(case.work / rows))
    x = case.drawn(rows, inner)
    if case.op == "ProductOfBytes":
        w = torch.randint(-9, 9, (inner, inner), dtype=torch.int8)
        return lambda x, w: F.linear(x, w.to(x.dtype)), [x, w]
    w = case.drawn(inner, inner)
    if case.dtype == "kS8":
        return lambda x, w: torch._int_mm(x, w.t()), [x, w]
    return (F.linear if case.is_transposed else torch.mm), [x, w]


def images(case: Case) -> tuple[Tensor, Tensor]:
    """Returns images and the weight of a 3 × 3 convolution of that many multiplications."""
    channels = even(math.sqrt(case.work / (9 * 4 * 16 * 16)))
    return case.drawn(4, channels, 16, 16), case.drawn(channels, channels, 3, 3)


def convolution(case: Case) -> Call:
    x, w = images(case)
    return lambda x, w: F.conv2d(x, w, padding=1), [x, w]


def convolution_of_weight(case: Case) -> Call:
    x, w = images(case)

    def gradient(dy: Tensor, x: Tensor, w: Tensor) -> Tensor:
        window = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        return torch.ops.aten.convolution_backward(dy, x, w, None, *window, [False, True, False])[1]

    return gradient, [torch.randn_like(x), x, w]


def frozen(case: Case) -> Call:
    x, w = images(case)
    layer = nn.Conv2d(w.shape[1], w.shape[0], 3, padding=1, bias=False).eval()
    layer.weight = nn.Parameter(w, requires_grad=False)
    return layer, [x]


def linear(case: Case) -> Call:
    _, (x, w) = product(case)
    layer = nn.Linear(w.shape[1], w.shape[0], bias=False).eval()
    layer.weight = nn.Parameter(w, requires_grad=False)
    return layer, [x]


def attention(case: Case) -> Call:
    length = even(math.sqrt(case.work / (8 * 64)))
    return (lambda q: F.scaled_dot_product_attention(q, q, q)), [case.drawn(1, 8, length, 64)]


def attention_backward(case: Case) -> Call:
    function, (q,) = attention(case)

    def gradient(q: Tensor) -> Tensor:
        leaf = q.detach().requires_grad_()
        return torch.autograd.grad(function(leaf).sum(), leaf)[0]  # type: ignore[attr-defined]

    return gradient, [q]


def recurrent(case: Case) -> Call:
    hidden = even(math.sqrt(case.work / 8))
    layer = nn.LSTM(hidden, hidden).eval().requires_grad_(False)
    return lambda x: layer(x)[0], [case.drawn(16, 8, hidden)]


def batch_norm(case: Case) -> Call:
    """The norm follows a convolution, whose images are NHWC."""
    channels = even(case.work / (4 * 16 * 16))
    x, w, ones = case.drawn(4, channels, 16, 16), case.drawn(channels, channels, 1, 1), torch.ones(channels)
    return lambda x, w, ones: F.batch_norm(F.conv2d(x, w), None, None, ones, ones, training=True), [x, w, ones]


def table(case: Case) -> Tensor:
    return case.drawn(max(1, case.work // 512), 512)


def norm(case: Case) -> Call:
    ones = torch.ones(512, dtype=case.type)
    return lambda x, ones: F.layer_norm(x, (512,), ones, ones), [table(case), ones]


def write(case: Case) -> Call:
    return lambda cache: cache.narrow(0, 1, 1).mul_(1.5), [case.drawn(max(8, case.work // 512), 512)]


CASES: dict[str, Callable[[Case], Call]] = {
    "Product": product, "ProductOfBytes": product, "Convolution": convolution,
    "ConvolutionOfWeight": convolution_of_weight, "FrozenConvolution": frozen, "FileConvolution": frozen,
    "FileProduct": linear, "Attention": attention, "AttentionBackward": attention_backward,
    "RecurrentLayer": recurrent, "BatchNorm": batch_norm, "Rows": lambda case: (lambda x: x.softmax(1), [table(case)]),
    "ReducedRows": lambda case: (lambda x: x.amax(1), [table(case)]), "LayerNorm": norm, "Write": write,
}  # fmt: skip


class Side:
    """A process that times one side's calls on request."""

    def __init__(self, case: Case, kernels: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_PJRT_LIBRARY_KERNELS": kernels}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "kernels.claims", json.dumps(dataclasses.asdict(case)), kernels],
            cwd=BENCH, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self) -> str:
        """Returns the next line: first who computes, then times of a call."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline().strip()
        if not line:
            raise RuntimeError("the process has ended")
        return line

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def who_of(texts: list[str]) -> str:
    text = "".join(texts)
    if "torch_pjrt_onednn" in text or "onednn" in text:
        return "OneDnn"
    return "Skinny" if "skinny" in text else "Aten" if "torch_pjrt.aten" in text else "Xla"


def compiled(case: Case, by_library: bool) -> tuple[Callable[[], object], str]:
    """Returns the compiled call, and who computes it."""
    import torch_pjrt
    from torch_pjrt import _C
    from torch_pjrt.kernels import onednn

    function, operands = CASES[case.op](case)
    texts: list[str] = []
    if case.op.startswith("File"):
        path = Path(tempfile.mkdtemp()) / "it.pjrt"
        with onednn.register(ONEDNN) if by_library else contextlib.nullcontext():
            exported = torch_pjrt.export(function, *operands, freeze=by_library)
            exported.save(path)
        program = torch_pjrt.load(path)
        return lambda: program(*operands), who_of([exported.stablehlo()])
    _C.set_program_listener(lambda _, text: texts.append(text))
    options = {"freeze": True} if case.op == "FrozenConvolution" and by_library else None
    run = torch.compile(function, backend="pjrt", dynamic=False, options=options)
    run(*operands)
    return lambda: run(*operands), who_of(texts)


def work(line: str, kernels: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with torch.no_grad():
        call, who = compiled(Case(**json.loads(line)), kernels != "0")
        sys.stdin.readline()
        print(who, flush=True)
        count = repeat_for(call, 0.1)
        while sys.stdin.readline():
            print(seconds(call, count, time.process_time), flush=True)


def capabilities() -> set[str]:
    """Returns this machine's, as src/ops/claims/claims.cpp names them."""
    sets, has_bf16 = instruction_sets(), torch.ops.mkldnn._is_mkldnn_bf16_supported()
    has = {
        "kAvx2": torch.backends.cpu.get_cpu_capability().startswith("AVX"),
        "kOneDnn": has_bf16,
        "kFp16": torch.ops.mkldnn._is_mkldnn_fp16_supported(),
        "kDots": has_bf16 and "BF16" in sets,
        "kVnni": has_bf16 and "VNNI" in sets,
    }
    return {name for name, is_there in has.items() if is_there}


def cases(row: re.Match[str]) -> list[Case]:
    """Returns what to measure of a row, if its library can run here."""
    needs, lacks = ({*row[what].split(" | ")} - {"kNone"} for what in ("needs", "lacks"))
    is_file = row["op"].startswith("File")
    if not needs <= capabilities() or lacks & capabilities() or (is_file and not ONEDNN.exists()):
        return []
    never = row["least"] == "kNever"
    least = 1 << (22 if never else int(row["least"].strip("two()")))
    dtype, layouts, limits = row["dtypes"].split(" | ")[0], row["layouts"], row["limits"] or ""
    works = [least] if never else [2 * least, 16 * least]
    return [Case(row["op"], dtype, layouts, limits, work, row["who"], not never) for work in works]


def measured(case: Case) -> tuple[float, float]:
    """Returns the least times of XLA and of the library."""
    sides = [Side(case, "0"), Side(case, "1" if case.by_default else "all")]
    try:
        if (who := [side.ask() for side in sides]) != ["Xla", case.who]:
            raise RuntimeError(f"{case}: computed by {who}")
        times = [[float(side.ask()) for side in sides] for _ in range(ROUNDS)]
    finally:
        for side in sides:
            side.end()
    xla, library = (min(each) for each in zip(*times, strict=True))
    return xla, library


def measure() -> list[Result]:
    results, lines = [], TABLE.read_text().splitlines()
    sets = instruction_sets()
    isa = "AMX" if sets.endswith(", AMX") else sets.split()[0].rstrip(",")
    wanted = [name for name in os.environ.get("TORCH_PJRT_BENCH_OPS", "").split(",") if name]
    for i, line in enumerate(lines):
        row = ROW.fullmatch(line)
        if not row:
            if line.startswith("{"):
                raise RuntimeError(f"{TABLE}:{i + 1}: what row is this? {line}")
            continue
        if wanted and row["op"] not in wanted:
            continue
        ratios = []
        for case in cases(row):
            name = f"{row['op']}, {row['dtypes']}, {case.layouts}, {case.limits or 'any'}, {case.work:.1e}"
            xla, library = measured(case)
            results.append(Result(name, library, xla, library / xla, None, against="XLA"))
            ratios.append(f"{xla / library:.2g}")
        if ratios:
            notes = [note for note in row["note"].split("; ") if not note.startswith(f"{isa}:")]
            lines[i] = line[: row.start("note")] + "; ".join([*notes, f"{isa}: {', '.join(ratios)}"])
    out = BENCH / "out"
    out.mkdir(exist_ok=True)
    (out / "claims.inc").write_text("\n".join(lines) + "\n")
    return results


if __name__ == "__main__":
    work(*sys.argv[1:])
