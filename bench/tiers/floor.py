"""Total seconds of loops.py's programs, with cold caches, over 1 to 10,000 steps: against eager mode and against
TORCH_PJRT_COMPILE=first. The lesser of these two is the floor.

The sides run alternately, each in a process of its own with one thread, all on one processor. Times are processor times
of the process, including background compiles: on an idle machine these are wall times, and on a shared one they exclude
other work. A process runs as many steps as fit into its time; later steps are extrapolated from the last ones, and
marked (~)."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from tiers.loops import LOOPS

from measure import Result

BENCH = Path(__file__).resolve().parent.parent
OUT = BENCH / "out"
STEPS = (1, 10, 100, 1000, 10_000)
SECONDS = float(os.environ.get("TORCH_PJRT_BENCH_SECONDS", "20"))  # for one process
LEAST = 6  # steps, independent of their time: the first may compile
ROUNDS = int(os.environ.get("TORCH_PJRT_BENCH_ROUNDS", "1"))
SHARE, MORE = 1.25, 0.3  # the target: a ratio to the floor, and additional seconds
SIDES = {"eager": ("cpu", "auto"), "auto": ("pjrt", "auto"), "first": ("pjrt", "first")}


@dataclasses.dataclass
class Curve:
    """Times at the ends of steps, as far as they were measured."""

    times: list[float]

    def at(self, step: int) -> tuple[float, bool]:
        """Returns the time after a step, and whether it was measured."""
        count = len(self.times)
        if step <= count:
            return self.times[step - 1], True
        last = max(1, count // 4)
        pace = [b - a for a, b in zip(self.times[-last - 1 :], self.times[-last:], strict=False)] or self.times
        return self.times[-1] + (step - count) * statistics.median(pace), False


def run(name: str, device: str) -> None:
    """Prints the time at the end of each step, without the start of the device."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    (torch.ones(2).to(device) + 1).cpu()
    step = LOOPS[name](device)
    times: list[float] = []
    start = time.process_time()
    while len(times) < STEPS[-1] and (len(times) < LEAST or times[-1] < SECONDS):
        step()
        times.append(time.process_time() - start)
    print(json.dumps(times))


def measured(name: str, side: str) -> Curve:
    device, policy = SIDES[side]
    processor = os.environ.get("TORCH_PJRT_BENCH_PROCESSOR", str(max(os.sched_getaffinity(0))))
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "TORCH_PJRT_CACHE": "1", "TORCH_PJRT_CACHE_DIR": cache,
            "TORCH_PJRT_COMPILE": policy,
        }  # fmt: skip
        command = ["taskset", "-c", processor, sys.executable, "-W", "ignore", "-m", "tiers.floor", name, device]
        done = subprocess.run(command, cwd=BENCH, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}, {side}: {done.stderr[-2000:]}")
    return Curve(json.loads(done.stdout.splitlines()[-1]))


def picture(curves: dict[str, dict[str, Curve]], path: Path) -> None:
    from matplotlib import pyplot as plt

    columns = 4
    rows = (len(curves) + columns - 1) // columns
    figure, grid = plt.subplots(rows, columns, figsize=(4 * columns, 2.8 * rows), layout="constrained", squeeze=False)
    for axes in grid.flat[len(curves) :]:
        axes.axis("off")
    for axes, (name, by_side) in zip(grid.flat, curves.items(), strict=False):
        for side, curve in by_side.items():
            (line,) = axes.plot(range(1, len(curve.times) + 1), curve.times, label=side)
            end = STEPS[-1]
            if len(curve.times) < end:
                axes.plot(
                    [len(curve.times), end], [curve.times[-1], curve.at(end)[0]], linestyle=":", color=line.get_color()
                )
        axes.set(title=name, xlabel="steps", ylabel="seconds", xscale="log", yscale="log")
    grid.flat[0].legend(fontsize="small")
    figure.suptitle("total seconds of one processor, cold; dotted: extrapolated")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def measure() -> list[Result]:
    names = os.environ.get("TORCH_PJRT_BENCH_LOOPS", ";".join(LOOPS)).split(";")
    results: list[Result] = []
    curves: dict[str, dict[str, Curve]] = {}
    for name in names:
        rounds = [{side: measured(name, side) for side in SIDES} for _ in range(ROUNDS)]
        curves[name] = {
            side: min((one[side] for one in rounds), key=lambda curve: curve.at(STEPS[-1])[0]) for side in SIDES
        }
        for steps in STEPS:
            (eager, known), (ours, ours_known), (first, first_known) = (
                curves[name][side].at(steps) for side in ("eager", "auto", "first")
            )
            allowed = SHARE * min(eager, first) + MORE
            guess = "" if known and ours_known and first_known else "~"
            results.append(
                Result(
                    f"{name}, {steps:,} steps{guess}",
                    ours,
                    allowed,
                    ours / allowed,
                    1.0,
                    against=f"{SHARE} of {'eager' if eager <= first else 'first'} + {MORE} s",
                )
            )
    OUT.mkdir(exist_ok=True)
    picture(curves, OUT / "floor_steps.png")
    return results


if __name__ == "__main__":
    import warnings

    warnings.filterwarnings("ignore")
    run(*sys.argv[1:])
