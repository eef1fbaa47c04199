"""Ten models at batch 4, and GPT-2 and a Llama-like one decoding, prefilling 512 tokens and training, in float32 and in
bfloat16 (autocast; a decoding model has the dtype itself), with two threads. Inference, with parameters frozen or not,
is compared with the faster of Inductor and frozen Inductor; a training step with eager, and with Inductor, which
compiles the optimizer, too; a step in one program with the same step by torch.compile.

Results are stored in bench/out/models.jsonl, a line for each (model, what, dtype), and a later run continues from
there: remove the file to measure everything again, or name models. Each model runs in a process of its own, which may
hang or die: its line then says so. TORCH_PJRT_BENCH_MODELS names some of the models (these are measured again),
TORCH_PJRT_BENCH_DTYPES some of the dtypes, and TORCH_PJRT_BENCH_SECONDS ends the run. With TORCH_PJRT_BENCH_THREADS=1
times are of the processor, for a shared machine; its lines are stored in another file.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import NamedTuple

from compile_models import MODELS
from ops.kept import ROOT, last_lines

from measure import Result
from ops import hand_out, named

LANGUAGE = ("gpt2", "llama")
DTYPES = ("float32", "bfloat16")
ONE_PROGRAM = "ours, one program"  # the worker's name for it
INFERENCE, STEP, PREFILL, DECODE = "inference", "training step", "prefill", "decode"
TARGETS = {INFERENCE: 1.2, STEP: 1.15}  # for one model
WORKER = Path(__file__).resolve().parent / "worker.py"
THREADS = int(os.environ.get("TORCH_PJRT_BENCH_THREADS", "2"))
KEPT = ROOT / f"bench/out/models{'' if THREADS == 2 else f'_{THREADS}'}.jsonl"
LIMIT = 900.0  # seconds for one line, in which Inductor compiles twice


class Unit(NamedTuple):
    model: str
    what: str
    dtype: str


def units() -> list[Unit]:
    chosen = os.environ.get("TORCH_PJRT_BENCH_MODELS")
    dtypes = named(os.environ.get("TORCH_PJRT_BENCH_DTYPES"), DTYPES)
    whats = [(model, what) for model in named(chosen, MODELS) for what in (INFERENCE, STEP)]
    whats += [(model, what) for model in named(chosen, LANGUAGE) for what in (DECODE, PREFILL, STEP)]
    return [Unit(model, what, dtype) for dtype in dtypes for model, what in whats]


def result(unit: Unit, seconds: dict[str, float]) -> Result:
    others = ("eager",) if unit.what == STEP else ("Inductor", "Inductor, frozen")
    against = min((way for way in others if way in seconds), key=seconds.__getitem__)
    ours, best = min(taken for way, taken in seconds.items() if way.startswith("ours")), seconds[against]
    return Result(", ".join(unit), ours, best, ours / best, TARGETS.get(unit.what), against=against)


def of_steps(unit: Unit, seconds: dict[str, float]) -> list[Result]:
    """Returns the results of a training step that result() leaves out."""
    if unit.what != STEP or ONE_PROGRAM not in seconds:
        return []
    one, two, name = seconds[ONE_PROGRAM], seconds["ours"], ", ".join(unit)
    results = [Result(f"{name}: one program", one, two, one / two, 1.02, against="torch.compile")]
    if "Inductor" in seconds:
        other = seconds["Inductor"]
        results.append(Result(name, min(one, two), other, min(one, two) / other, 1.0, against="Inductor"))
    return results


def means(found: dict[Unit, Result]) -> list[Result]:
    """Returns the geometric means of the models' ratios."""
    ratios: dict[tuple[str, str], list[Result]] = {}
    for unit, one in found.items():
        ratios.setdefault((unit.what, unit.dtype), []).append(one)
    made = []
    for (what, dtype), some in ratios.items():
        ours, reference = (
            math.exp(sum(map(math.log, x)) / len(some))
            for x in zip(*[(r.ours, r.reference) for r in some], strict=True)
        )
        made.append(
            Result(f"mean of {len(some)}, {what}, {dtype}", ours, reference, ours / reference, 1.0, against="as above")
        )
    return made


def measure() -> list[Result]:
    done = {} if os.environ.get("TORCH_PJRT_BENCH_MODELS") else last_lines(KEPT, Unit)
    left = [unit for unit in units() if "seconds" not in done.get(unit, {})]
    hand_out(left, KEPT, WORKER, LIMIT, threads=THREADS)
    reported = last_lines(KEPT, Unit)
    for unit in units():
        if "left_out" in reported.get(unit, {}):
            print(f"{', '.join(unit)}: {reported[unit]['left_out']}", file=sys.stderr)
    found = {unit: result(unit, reported[unit]["seconds"]) for unit in units() if "seconds" in reported.get(unit, {})}
    steps = [one for unit in found for one in of_steps(unit, reported[unit]["seconds"])]
    return [*found.values(), *means(found), *steps]
