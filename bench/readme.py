"""The README's table of figures, from one run on one machine, written between the marks in README.md.

It takes a quarter of an hour on an idle machine. TORCH_PJRT_BENCH_MODELS=squeezenet rehearses it with one model:
restore README.md afterwards. Other measurements have more rows, and targets."""

from __future__ import annotations

import os
from pathlib import Path

import known_graph
import mlp
import networks
import record
import whole_models
from show import in_words

from machine import facts
from measure import Result

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- figures: ./dev bench readme -->", "<!-- end of figures -->"
MODELS = ("resnet18", "mobilenet_v2", "vit", "bert")


def table(results: list[Result], machine: dict[str, object]) -> str:
    where = f"{machine['cpu']} ({machine['isa']}), {machine['torch_threads']} threads, torch {machine['torch']}"
    plugin = str(machine["plugin"]).split(",")[0]
    lines = [
        f"Measured on {str(machine['time'])[:10]}: {where}, plugin {plugin}, commit `{machine['commit']}`.",
        "A ratio below 1 is faster than the reference.",
        "",
        "| measured | ours | reference | ratio |",
        "| --- | --- | --- | --- |",
    ]
    for one in results:
        reference = f"{in_words(one.reference, one.unit)} ({one.against})"
        lines.append(f"| {one.name} | {in_words(one.ours, one.unit)} | {reference} | {one.ratio:.2f} |")
    return "\n".join(lines)


def measure() -> list[Result]:
    machine = facts()
    results = [r for module in (record, known_graph, networks, mlp) for r in module.measure()]
    os.environ.setdefault("TORCH_PJRT_BENCH_MODELS", ",".join(MODELS))
    os.environ.setdefault("TORCH_PJRT_BENCH_DTYPES", "float32")
    results += whole_models.measure()
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n{table(results, machine)}\n{END}{after}")
    return results
