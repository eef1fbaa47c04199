"""Runs the measurements (all, or the named ones), and writes a table, a JSON and a PNG to bench/out.

Each measurement is a file beside this one with a function measure() that returns its Results. `./dev bench NAME --help`
prints what a measurement does and its settings.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # models/
# Times and counts must not depend on earlier runs.
os.environ["TORCH_PJRT_CACHE"] = "0"
# Programs are measured, not interpreted graphs; first_minute measures those.
os.environ.setdefault("TORCH_PJRT_COMPILE", "first")

from rich.console import Console  # noqa: E402
from show import picture, table  # noqa: E402

from machine import facts  # noqa: E402
from measure import Result  # noqa: E402
from torch_pjrt import _C  # noqa: E402

MEASUREMENTS = ["record", "known_graph", "mlp", "varying", "networks"]
NAMED_ONLY = [
    "large_networks",
    "memory",
    "depth",
    "models",
    "compile",
    "compile_models",
    "composites",
    "products",
    "sparse",
    "parallel",
    "decode",
    "deploy",
    "generate",
    "jax",
    "first_minute",
    "readme",
    "costs",
    "claims",
    "people",
    "floor",
    "mechanisms",
    "ops",
]  # they take minutes
# Measurements whose files have other names; a file jax.py, for instance, would hide the library.
MODULES = {
    "jax": "jax_entry_points",
    "costs": "tiers.costs",
    "claims": "kernels.claims",
    "floor": "tiers.floor",
    "mechanisms": "tiers.mechanisms",
    "parallel": "world.parallel",
    "models": "whole_models",  # models/ has the networks
    "products": "kernels.products",
    "sparse": "sparse_matrices",
}
OUT = ROOT / "bench" / "out"


def main() -> int:
    asks = "--help" in sys.argv
    names = [name for name in sys.argv[1:] if name != "--help"] or MEASUREMENTS
    if unknown := [n for n in names if n not in MEASUREMENTS + NAMED_ONLY]:
        print(f"bench: no measurement {', '.join(unknown)}; there are {', '.join(MEASUREMENTS + NAMED_ONLY)}")
        return 2
    if asks:
        for name in names:
            print(importlib.import_module(MODULES.get(name, name)).__doc__)
        return 0
    _C.set_interprets_growing(False)
    console = Console()
    console.width = max(console.width, 110)
    machine = facts()
    results: list[Result] = []
    broken = []
    for name in names:
        console.print(f"[bold]{name}[/] …")
        try:
            module = MODULES.get(name, name)
            results += importlib.import_module(module).measure()
        except Exception:
            traceback.print_exc()
            broken.append(name)
    console.print(table(results, machine))
    OUT.mkdir(exist_ok=True)
    stem = "-".join(names) if sys.argv[1:] else "bench"
    rows = [{**dataclasses.asdict(r), "passed": r.passed} for r in results]
    (OUT / f"{stem}.json").write_text(json.dumps({"machine": machine, "broken": broken, "results": rows}, indent=2))
    picture(results, machine, OUT / f"{stem}.png")
    console.print(f"wrote bench/out/{stem}.json and .png")
    if broken:
        console.print(f"[red]broke: {', '.join(broken)}")
    return 1 if broken or any(r.passed is False for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
