"""The README's table of figures, from one run on one machine, written between the marks in README.md.

It takes 20 minutes on an idle machine. TORCH_PJRT_BENCH_MODELS=squeezenet rehearses it with one model:
restore README.md afterwards. Other measurements have more rows, and targets."""

from __future__ import annotations

import os
from pathlib import Path

import known_graph
import mlp
import record
import whole_models
from show import in_words

from machine import facts
from measure import Result

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- figures: ./dev bench readme -->", "<!-- end of figures -->"
MODELS = ("resnet18", "mobilenet_v2", "vit", "bert")


def is_for_readers(one: Result) -> bool:
    """Whether the README has this result; bench/out/readme.json has all."""
    return one.against.startswith(("eager", "Inductor")) and "C++" not in one.name


def table(results: list[Result], machine: dict[str, object]) -> str:
    threads = "one thread" if machine["torch_threads"] == 1 else f"{machine['torch_threads']} threads"
    where = f"{machine['cpu']} ({machine['isa']}), {threads}, torch {machine['torch']}"
    plugin = str(machine["plugin"]).split(",")[0]
    lines = [
        f"Measured on {str(machine['time'])[:10]}: {where}, plugin {plugin}, commit `{machine['commit']}`.",
        "A ratio below 1 is faster. Inductor is the faster of plain and frozen.",
        "",
        "| measured | ours | over eager | over Inductor |",
        "| --- | --- | --- | --- |",
    ]
    rows: dict[str, list[Result]] = {}
    for one in filter(is_for_readers, results):
        rows.setdefault(one.name.replace(", float32", ""), []).append(one)
    for name, some in rows.items():
        ratios = {one.against.split(",")[0].removesuffix(" CPU"): f"{one.ratio:.2f}" for one in some}
        ours = in_words(some[0].ours, some[0].unit)
        lines.append(f"| {name} | {ours} | {ratios.get('eager', '')} | {ratios.get('Inductor', '')} |")
    return "\n".join(lines)


def measure() -> list[Result]:
    machine = facts()
    results = [r for module in (record, known_graph, mlp) for r in module.measure()]
    os.environ.setdefault("TORCH_PJRT_BENCH_MODELS", ",".join(MODELS))
    os.environ.setdefault("TORCH_PJRT_BENCH_DTYPES", "float32")
    results += whole_models.measure()
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n{table(results, machine)}\n{END}{after}")
    return results
