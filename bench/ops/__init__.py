"""Every op of PyTorch's OpInfo database beside eager: forward and backward, call by call and compiled, sorted by ratio.

A sample is made larger by repeating its tensors along each dimension, so that shapes still fit each other and numbers
are still those that the op takes. TORCH_PJRT_BENCH_OPS names some of the ops, TORCH_PJRT_BENCH_SIZES some of the sizes,
TORCH_PJRT_BENCH_DTYPES some of the dtypes. bench/out/ops_table.json has all of it, and
`./dev python bench/ops` writes the slowest into docs/ops.md.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import torch_pjrt
from machine import facts
from measure import Result, in_turns

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "bench/out/ops_table.json"
DOCUMENT, START, END = ROOT / "docs/ops.md", "<!-- made by bench/ops -->\n", "<!-- end of it -->"
SIZES = (1_000, 30_000, 1_000_000)  # elements of the largest tensor
DTYPES = ("float32", "bfloat16", "int64")
MOST = 2.0  # seconds of eager: what takes longer is left out
ABOVE = 2.0  # what the document names


@dataclass
class Timed:
    op: str
    dtype: str
    size: int
    direction: str  # "forward" or "backward"
    way: str  # "by calls" or "compiled"
    eager: float  # seconds
    ours: float

    @property
    def ratio(self) -> float:
        return self.ours / self.eager


def larger(tree: Any, size: int) -> Any:
    """With about ``size`` elements in the largest tensor: each dimension above 1 is repeated as often."""
    given = [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor) and x.numel()]
    most = max(given, key=torch.Tensor.numel)
    wide = sum(n > 1 for n in most.shape)
    if wide == 0 or most.numel() >= size:
        return tree
    times = max(1, round((size / most.numel()) ** (1 / wide)))

    def repeated(x: torch.Tensor) -> torch.Tensor:
        plain = x.detach().repeat([times if n > 1 else 1 for n in x.shape]) if x.dim() else x.detach().clone()
        return plain.requires_grad_(x.requires_grad)

    return pytree.tree_map_only(torch.Tensor, repeated, tree)


def chosen_sample(op: Any, dtype: torch.dtype, size: int, needs_grad: bool) -> tuple[Any, Any, Any] | None:
    """The first whose tensors can be made so large, with what eager gives for it."""
    for sample in list(op.sample_inputs("cpu", dtype, requires_grad=needs_grad))[:12]:
        tree = (sample.input, sample.args, sample.kwargs)
        if not any(isinstance(x, torch.Tensor) and x.numel() > 1 for x in pytree.tree_leaves(tree)):
            continue
        try:
            made = larger(tree, size)
            result = op.op(made[0], *made[1], **made[2])
        except Exception:
            continue
        sizes = [x.numel() for x in pytree.tree_leaves((made, result)) if isinstance(x, torch.Tensor)]
        if max(sizes, default=0) >= size / 4:
            return made
    return None


def tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def calls(op: Any, made: tuple[Any, Any, Any], backward: bool) -> Callable[[], None] | None:
    """The op on these; or its backward."""
    leaves = [x for x in tensors(made) if x.requires_grad]
    device = any(x.device.type == "pjrt" for x in tensors(made))

    def await_all(values: list[torch.Tensor]) -> None:
        if device:
            torch_pjrt.sync([x for x in values if x.device.type == "pjrt"])
            torch.pjrt.synchronize()

    if not backward:

        def forward() -> None:
            with torch.no_grad():
                await_all(tensors(op.op(made[0], *made[1], **made[2])))

        return forward
    result = op.op(made[0], *made[1], **made[2])
    given = [x for x in tensors(result) if x.requires_grad]
    if not given or not leaves:
        return None
    ones = [torch.ones_like(x) for x in given]
    await_all([*given, *ones])

    def run() -> None:
        found = torch.autograd.grad(given, leaves, ones, retain_graph=True, allow_unused=True)
        await_all([x for x in found if x is not None])

    return run


def timed(name: str, op: Any, dtype: str, size: int) -> Iterator[Timed]:
    from tests.ops.opinfo import on_device  # noqa: F401 (sets OpInfo up)
    from torch_pjrt import _C

    kind = getattr(torch, dtype)
    has_gradient = kind.is_floating_point and op.supports_autograd and kind in op.supported_backward_dtypes("cpu")
    made = chosen_sample(op, kind, size, has_gradient)
    if made is None:
        return
    moved = pytree.tree_map_only(torch.Tensor, lambda x: x.detach().to("pjrt").requires_grad_(x.requires_grad), made)
    for direction in ("forward", "backward") if has_gradient else ("forward",):
        eager = calls(op, made, direction == "backward")
        if eager is None:
            continue
        start = time.perf_counter()
        eager()
        if time.perf_counter() - start > MOST:
            continue
        for way, policy in (("by calls", "auto"), ("compiled", "first")):
            _C.set_compile_policy(policy)
            ours = calls(op, moved, direction == "backward")
            if ours is None:
                continue
            ours()
            taken = in_turns({"eager": eager, "ours": ours}, rounds=5, turn=0.005)
            yield Timed(name, dtype, size, direction, way, min(taken["eager"]), min(taken["ours"]))


def chosen(named: str | None, of: Any) -> list[Any]:
    return [x for x in of if str(x) in named.split(",")] if named else list(of)


def measured() -> list[Timed]:
    from tests.ops.opinfo import OPS, UNSUPPORTED

    found = []
    names = [name for name in chosen(os.environ.get("TORCH_PJRT_BENCH_OPS"), OPS) if name not in UNSUPPORTED]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            for dtype in chosen(os.environ.get("TORCH_PJRT_BENCH_DTYPES"), DTYPES):
                if not OPS[name].supports_dtype(getattr(torch, dtype), "cpu"):
                    continue
                for size in chosen(os.environ.get("TORCH_PJRT_BENCH_SIZES"), SIZES):
                    torch.manual_seed(0)
                    try:
                        found += timed(name, OPS[name], dtype, size)
                    except Exception as error:
                        print(f"{name}, {dtype}, {size}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
    return sorted(found, key=lambda one: -one.ratio)


def measure() -> list[Result]:
    """The slowest, of each op once."""
    found = measured()
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"machine": facts(), "timed": [asdict(one) for one in found]}, indent=1))
    results: dict[str, Result] = {}
    for one in found:
        if one.size == max(SIZES):
            label = f"{one.op}, {one.direction}, {one.dtype}, {one.way}"
            results.setdefault(f"{one.op} {one.way}", Result(label, one.ours, one.eager, one.ratio, None))
    return list(results.values())[:40]


def table() -> str:
    """Of what was measured last: at the largest size, what takes more than ABOVE times what eager does."""
    told = json.loads(OUT.read_text())
    found = [Timed(**one) for one in told["timed"]]
    largest = max(one.size for one in found)
    cells: dict[tuple[str, str, str], dict[tuple[str, int], float]] = {}
    for one in found:
        cells.setdefault((one.op, one.direction, one.dtype), {})[one.way, one.size] = one.ratio
    sizes = sorted({one.size for one in found})
    ways = ("by calls", "compiled")
    worst = {key: max(cell.get((way, largest), 0) for way in ways) for key, cell in cells.items()}
    above = sorted((key for key in cells if worst[key] > ABOVE), key=lambda key: -worst[key])
    lines = [
        f"Of {len(cells)} (op, direction, dtype), {len(above)} take more than {ABOVE:g} times as long as eager's "
        f"kernels at {largest:,} elements, on one core of {told['machine']['cpu']}.",
        "",
        "| op | dtype | " + " | ".join(f"{way}, {size:,}" for way in ways for size in sizes) + " |",
        "| --- " * (2 + len(ways) * len(sizes)) + "|",
    ]
    for key in above:
        op, direction, dtype = key
        ratios = [cells[key].get((way, size)) for way in ways for size in sizes]
        shown = " | ".join("–" if ratio is None else f"{ratio:.1f}" for ratio in ratios)
        lines.append(f"| {op}{', backward' if direction == 'backward' else ''} | {dtype} | {shown} |")
    return "\n".join(lines) + "\n"


def write_document() -> None:
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(START)
    DOCUMENT.write_text(before + START + "\n" + table() + "\n" + END + rest.partition(END)[2])
