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


def in_table(one: Result) -> bool:
    """Whether a reader of the README needs this row: all rows are in bench/out/readme.json."""
    return "one program" not in one.name and "mean of" not in one.name and "bare PJRT" not in one.against


def table(results: list[Result], machine: dict[str, object]) -> str:
    threads = "one thread" if machine["torch_threads"] == 1 else f"{machine['torch_threads']} threads"
    where = f"{machine['cpu']} ({machine['isa']}), {threads}, torch {machine['torch']}"
    plugin = str(machine["plugin"]).split(",")[0]
    lines = [
        f"Measured on {str(machine['time'])[:10]}: {where}, plugin {plugin}, commit `{machine['commit']}`.",
        "A ratio below 1 is faster than the reference.",
        "",
        "| measured | ours | reference | ratio |",
        "| --- | --- | --- | --- |",
    ]
    for one in filter(in_table, results):
        reference = f"{in_words(one.reference, one.unit)} ({one.against})"
        name = one.name.replace(", float32", "")
        lines.append(f"| {name} | {in_words(one.ours, one.unit)} | {reference} | {one.ratio:.2f} |")
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
