"""Measures units: reads a line of JSON, (network, what, depth), and writes a line with the seconds of a run and of the
first runs, for each way.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]
os.environ["TORCH_PJRT_COMPILE"] = "first"

import torch  # noqa: E402

import torch_pjrt  # noqa: E402
from measure import interleaved  # noqa: E402
from models.deep import deep  # noqa: E402
from ops import named  # noqa: E402

FIRST_RUNS, ROUNDS, BATCH_SECONDS = 3, 7, 0.05
Run = Callable[[], object]


def wait() -> None:
    """Waits until all recorded work is computed."""
    torch_pjrt.sync()
    torch.pjrt.synchronize()  # type: ignore[attr-defined]


def waits(device: str) -> Run:
    return wait if device == "pjrt" else lambda: None


def forward(network: str, depth: int, device: str, compiled: Callable[..., Any]) -> Run:
    model, x = deep(network, depth)
    call, given, wait = compiled(model.to(device).eval()), x.to(device), waits(device)

    def run() -> object:
        with torch.no_grad():
            result = call(given)
        wait()
        return result

    return run


def step(network: str, depth: int, device: str, compiled: Callable[..., Any], whole: Callable[..., Any]) -> Run:
    model, x = deep(network, depth)
    call, given, wait = compiled(model.to(device).train()), x.to(device), waits(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def once() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = call(given).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = whole(once)

    def run_and_wait() -> None:
        run()
        wait()

    return run_and_wait


def inductor_step(network: str, depth: int) -> Run:
    """Returns a step with compiled model and optimizer."""
    model, x = deep(network, depth)
    call = torch.compile(model.train(), dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    update = torch.compile(optimizer.step, dynamic=False)

    def run() -> None:
        optimizer.zero_grad()
        loss = call(x).square().mean()
        loss.backward()
        update()

    return run


def as_it_is(call: Any) -> Any:
    return call


def by_pjrt(model: Any) -> Any:
    return torch.compile(model, backend="pjrt", dynamic=False)


def ways(network: str, what: str, depth: int) -> dict[str, Callable[[], Run]]:
    if what == "forward":
        found: dict[str, Callable[[], Run]] = {
            "eager": lambda: forward(network, depth, "cpu", as_it_is),
            "torch.compile": lambda: forward(network, depth, "pjrt", by_pjrt),
            "first": lambda: forward(network, depth, "pjrt", as_it_is),
            "Inductor": lambda: forward(network, depth, "cpu", lambda model: torch.compile(model, dynamic=False)),
        }
    else:
        found = {
            "eager": lambda: step(network, depth, "cpu", as_it_is, as_it_is),
            "compile_step": lambda: step(network, depth, "pjrt", as_it_is, torch_pjrt.compile_step),
            "torch.compile": lambda: step(network, depth, "pjrt", by_pjrt, as_it_is),
            "first": lambda: step(network, depth, "pjrt", as_it_is, as_it_is),
            "Inductor": lambda: inductor_step(network, depth),
        }
    return {way: found[way] for way in named(os.environ.get("TORCH_PJRT_BENCH_WAYS"), found)}


def timed(network: str, what: str, depth: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    runs: dict[str, Run] = {}
    first: dict[str, float] = {}
    left_out: dict[str, str] = {}
    torch._dynamo.reset()  # between ways it would make the earlier ones compile again where they are timed
    for way, made in ways(network, what, depth).items():
        try:
            run = made()
            start = time.process_time()
            for _ in range(FIRST_RUNS):
                run()
            first[way] = time.process_time() - start
            runs[way] = run
        except Exception as error:
            left_out[way] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    least = {
        way: min(t)
        for way, t in interleaved(runs, rounds=ROUNDS, batch_seconds=BATCH_SECONDS, clock=time.process_time).items()
    }
    taken = {way: (run, max(0.0, first[way] - FIRST_RUNS * run)) for way, run in least.items()}
    return {"taken": taken, "left_out": left_out}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for output of networks
    for line in sys.stdin:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reported = timed(*json.loads(line))
        answers.write(json.dumps(reported) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
