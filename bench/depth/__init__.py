"""The cost of a layer in deep networks: networks of 4, 16 and 64 layers (models/deep.py), cells over 10, 50 and 200
steps, forward and training step, on one core in processor time.

The time of a layer at the largest depth is at most 1.15 of its time at the smallest, the time to compile it at most
1.3; a step takes no longer than eager's, one program no longer than two. Inductor is shown for comparison.

Results are stored in bench/out/depth.jsonl, a line for each (network, what, depth), and a later run continues from
there: remove the file to measure everything again, or name networks. TORCH_PJRT_BENCH_NETWORKS names some of the
networks, or wider ones ("residual MLP of 256"; these are measured again), TORCH_PJRT_BENCH_DEPTHS some of the depths,
TORCH_PJRT_BENCH_WAYS some of the ways, and TORCH_PJRT_BENCH_SECONDS ends the run. bench/out/depth_growth.png shows a
layer's time by depth.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from ops.kept import ROOT, last_lines

from measure import Result
from models.deep import DEEP, WIDE
from ops import hand_out, named

DEPTHS, STEPS = (4, 16, 64), (10, 50, 200)
FORWARD, STEP = "forward", "training step"
OURS = ("compile_step", "torch.compile", "first")
GROWTH, COMPILE_GROWTH, ONE_PROGRAM = 1.15, 1.3, 1.02
WORKER = Path(__file__).resolve().parent / "worker.py"
KEPT = ROOT / "bench/out/depth.jsonl"
LIMIT = 900.0  # seconds for one line, in which Inductor compiles 64 layers one by one


class Unit(NamedTuple):
    network: str
    what: str
    depth: int


class Taken(NamedTuple):
    """Seconds of a run, and of the first runs in excess of as many later ones."""

    run: float
    compile: float


Found = dict[Unit, dict[str, Taken]]


def units() -> list[Unit]:
    chosen = os.environ.get("TORCH_PJRT_BENCH_DEPTHS")
    return [
        Unit(network, what, int(depth))
        for what in (STEP, FORWARD)
        for network in named(os.environ.get("TORCH_PJRT_BENCH_NETWORKS", ",".join(DEEP)), DEEP | WIDE)
        for depth in named(chosen, STEPS if network.endswith("Cell") else DEPTHS)
    ]


def growth(found: Found) -> list[Result]:
    """Compares, for each network and way, a layer's time at the largest depth with that at the smallest."""
    depths: dict[tuple[str, str], list[Unit]] = {}
    for unit in sorted(found, key=lambda unit: unit.depth):
        depths.setdefault((unit.network, unit.what), []).append(unit)
    results = []
    for (network, what), some in depths.items():
        least, most = some[0], some[-1]
        if least == most:
            continue
        for way in OURS:
            if way not in found[least] or way not in found[most]:
                continue
            for kind, target in (("run", GROWTH), ("compile", COMPILE_GROWTH)):
                if kind == "compile" and found[least][way].compile < 0.1:  # another way compiled the same program
                    continue
                short, long = (getattr(found[unit][way], kind) / unit.depth for unit in (least, most))
                name = f"{network}, {what}, {way}: a layer of {most.depth}" + ", compiled" * (kind == "compile")
                results.append(Result(name, long, short, long / short, target, against=f"of {least.depth}"))
    return results


def beside(unit: Unit, taken: dict[str, Taken]) -> list[Result]:
    """Compares the faster compiled way with the others, and one program with two."""
    ways = {way: taken[way].run for way in ("compile_step", "torch.compile") if way in taken}
    results = []
    for other in ("eager", "Inductor"):
        if ways and other in taken:
            ours, reference = min(ways.values()), taken[other].run
            results.append(Result(", ".join(map(str, unit)), ours, reference, ours / reference, 1.0, against=other))
    if len(ways) == 2:
        one, two = ways["compile_step"], ways["torch.compile"]
        name = f"{', '.join(map(str, unit))}: one program"
        results.append(Result(name, one, two, one / two, ONE_PROGRAM, against="two"))
    return results


def picture(found: Found, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    networks, whats = (list(dict.fromkeys(unit[i] for unit in found)) for i in (0, 1))
    size = (4.5 * len(whats), 2.2 * len(networks))
    figure, axes = plt.subplots(len(networks), len(whats), figsize=size, squeeze=False, layout="constrained")
    for row, network in zip(axes, networks, strict=True):
        for at, what in zip(row, whats, strict=True):
            some = sorted((u for u in found if (u.network, u.what) == (network, what)), key=lambda u: u.depth)
            for way in dict.fromkeys(way for unit in some for way in found[unit]):
                has = [unit for unit in some if way in found[unit]]
                layers = [found[unit][way].run / unit.depth * 1e6 for unit in has]
                at.plot([unit.depth for unit in has], layers, marker="o", label=way)
            at.set_xscale("log", base=2)
            at.set_ylim(bottom=0)
            at.set_title(f"{network}, {what}: µs a layer", fontsize=8)
            at.tick_params(labelsize=7)
    axes[0][0].legend(fontsize=6)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def measure() -> list[Result]:
    done = {} if os.environ.get("TORCH_PJRT_BENCH_NETWORKS") else last_lines(KEPT, Unit)
    left = [unit for unit in units() if "taken" not in done.get(unit, {})]
    hand_out(left, KEPT, WORKER, LIMIT)
    reported = last_lines(KEPT, Unit)
    found: Found = {}
    for unit in units():
        if left_out := reported.get(unit, {}).get("left_out"):  # some ways, or all for one reason
            print(f"{', '.join(map(str, unit))}: {left_out}", file=sys.stderr)
        if "taken" in reported.get(unit, {}):
            found[unit] = {way: Taken(*seconds) for way, seconds in reported[unit]["taken"].items()}
    if found:
        picture(found, KEPT.with_name("depth_growth.png"))
    return [*growth(found), *(result for unit, taken in found.items() for result in beside(unit, taken))]
