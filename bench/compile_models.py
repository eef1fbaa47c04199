"""Inference of ten models through torch.compile: time to compile, cold and from the disk cache, and time to run.

Each model has processes of its own, with empty caches. The ratios of compile times exclude Dynamo and AOTAutograd,
which are equal for all backends: for ours, they have the time in its compiler; for Inductor, the time of its first call
minus that of the backend "aot_eager" (seconds, next to which the variation of two runs is small).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import Result, compare

MODELS = (
    "resnet18",
    "resnet50",
    "resnext50",
    "alexnet",
    "mobilenet_v2",
    "mnasnet",
    "squeezenet",
    "vgg16",
    "bert",
    "vit",
)
BATCHES = (4, 1)
COLD, FROM_DISK = 0.15, 0.03


def first_call(fn: Callable[[], object]) -> float:
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def time_our_compiler() -> list[float]:
    """Returns a list to which each call of the backend's compiler adds its seconds."""
    from torch_pjrt.dynamo import backend

    spent: list[float] = []
    inner = backend.compile_graph

    def timed(*arguments: object) -> object:
        start = time.perf_counter()
        compiled = inner(*arguments)  # type: ignore[arg-type]
        spent.append(time.perf_counter() - start)
        return compiled

    backend.compile_graph = timed  # type: ignore[assignment]
    return spent


def work(name: str, backends: list[str]) -> None:
    """Compiles with each backend in turn, times the calls, and prints the results; runs in a process of its own."""
    import torch

    from models.catalogue import Case, case

    for backend in backends:  # imports and starts of a backend are not part of the model's time
        torch.compile(torch.nn.Linear(2, 2), backend=backend)(torch.ones(1, 2))
    compile_seconds: dict[str, float] = {}
    spent = time_our_compiler()
    results: list[dict[str, object]] = []
    for batch in BATCHES:
        made = case(name, batch=batch)
        model = made.model.eval()

        def call(fn: Callable[..., object], made: Case = made) -> Callable[[], object]:
            def once() -> object:
                with torch.no_grad():
                    return Case.output(fn, made.inputs)  # type: ignore[arg-type]

            return once

        calls = {}
        for backend in backends:
            calls[backend] = call(torch.compile(model, backend=backend, dynamic=False))
            seconds = first_call(calls[backend])
            compile_seconds.setdefault(backend, seconds)
            if backend == "pjrt":
                compile_seconds.setdefault("our compiler", sum(spent))
        if "inductor" not in backends:
            break
        for title, other in (("Inductor", calls["inductor"]), ("eager CPU", call(model))):
            result = compare(f"{name}, batch {batch}", calls["pjrt"], other, None, against=title, rounds=5, warm=2)
            results.append(vars(result))
    print(json.dumps({"compile": compile_seconds, "run": results}))


def process(name: str, backends: list[str], caches: str) -> dict[str, object]:
    here = Path(__file__).resolve()
    command = f"import sys; sys.path[:0] = {[str(here.parent), *sys.path]!r}; import compile_models as c; "
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", command + f"c.work({name!r}, {backends!r})"],
        env={
            **os.environ,
            "TORCH_PJRT_CACHE": "1",  # run.py disables it
            "TORCH_PJRT_CACHE_DIR": f"{caches}/pjrt",
            "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return measured


def of_model(name: str) -> list[Result]:
    with tempfile.TemporaryDirectory() as caches:
        cold = process(name, ["aot_eager", "pjrt", "inductor"], caches)
        disk = process(name, ["aot_eager", "pjrt"], caches)
    seconds, warm = cold["compile"], disk["compile"]
    inductor = seconds["inductor"] - seconds["aot_eager"]
    ours, again = (s["our compiler"] for s in (seconds, warm))

    def line(what: str, value: float, reference: float, target: float | None) -> Result:
        return Result(f"{name}, {what}", value, reference, value / reference, target, against="Inductor")

    return [
        line("compile, cold", ours, inductor, COLD),
        line("compile, from disk", again, inductor, FROM_DISK),
        line("first call, Dynamo included", seconds["pjrt"], seconds["inductor"], None),
        *(Result(**run) for run in cold["run"]),
    ]


def measure() -> list[Result]:
    from tqdm import tqdm

    chosen = os.environ.get("TORCH_PJRT_BENCH_MODELS", ",".join(MODELS)).split(",")
    if unknown := set(chosen) - set(MODELS):
        raise ValueError(f"TORCH_PJRT_BENCH_MODELS names {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    return [result for name in tqdm(chosen, unit="model") for result in of_model(name)]
