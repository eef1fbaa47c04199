"""Measures units: reads a line of JSON, (model, what, dtype), and writes a line with the minimal times of each way."""

from __future__ import annotations

import contextlib
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

import decode  # noqa: E402
import torch  # noqa: E402

import torch_pjrt  # noqa: E402
from measure import interleaved  # noqa: E402
from models.catalogue import Case, case  # noqa: E402

BATCH, TOKENS, ROUNDS, BATCH_SECONDS = 4, 512, 9, 0.3
ONE_PROGRAM = "ours, one program"
Run = Callable[[], object]
Compiled = Callable[[torch.nn.Module], Callable[..., Any]]


def cast(dtype: str) -> contextlib.AbstractContextManager[object]:
    return torch.autocast("cpu", torch.bfloat16) if dtype == "bfloat16" else contextlib.nullcontext()


def inference(made: Case, compiled: Compiled, dtype: str) -> Run:
    call = compiled(made.model.eval())

    def run() -> None:
        with torch.no_grad(), cast(dtype):
            Case.output(call, made.inputs)  # type: ignore[arg-type]

    return run


def step(made: Case, compiled: Compiled, dtype: str) -> Run:
    call = compiled(made.model.train())
    optimizer = torch.optim.SGD(made.model.parameters(), lr=1e-4, momentum=0.9)
    update = torch.compile(optimizer.step, dynamic=False) if compiled is INDUCTOR else optimizer.step

    def run() -> None:
        optimizer.zero_grad()
        with cast(dtype):
            loss = made.loss(Case.output(call, made.inputs).float(), made.target)  # type: ignore[arg-type]
        loss.backward()
        update()

    return run


def one_program(made: Case, dtype: str) -> Run:
    """Returns the same step by compile_step, on the device."""
    model, inputs, target = made.model.to("pjrt").train(), [x.to("pjrt") for x in made.inputs], made.target.to("pjrt")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    @torch_pjrt.compile_step
    def run() -> None:
        optimizer.zero_grad()
        with torch.autocast("pjrt", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = made.loss(Case.output(model, inputs).float(), target)  # type: ignore[arg-type]
        loss.backward()
        optimizer.step()

    def run_and_wait() -> None:
        run()
        torch.pjrt.synchronize()  # type: ignore[attr-defined]

    return run_and_wait


def prefill(made: Case, compiled: Compiled, dtype: str) -> Run:
    tokens = torch.randint(0, made.model.config.vocab_size, (1, TOKENS))
    return inference(Case(made.model, (tokens,), made.target), compiled, dtype)


def one_token(made: Case, compiled: Compiled, dtype: str) -> Run:
    """Returns a decoding step. The model has the dtype itself: transformers' static cache can't mix two."""
    return decode.step(made.model.to(getattr(torch, dtype)), compiled)


KINDS = {"inference": inference, "training step": step, "prefill": prefill, "decode": one_token}


def through(backend: str, *, frozen: bool = False) -> Compiled:
    if backend == "pjrt":
        return lambda model: torch.compile(model, backend=backend, dynamic=False, options={"freeze": frozen})

    from torch._inductor import config

    def compiled(model: torch.nn.Module) -> Callable[..., Any]:
        call = torch.compile(model, backend=backend, dynamic=False)

        def run(*args: Any, **kwargs: Any) -> Any:
            with config.patch(freezing=frozen):
                return call(*args, **kwargs)

        return run if frozen else call

    return compiled


INDUCTOR = through("inductor")


def ways(what: str) -> dict[str, Compiled]:
    found: dict[str, Compiled] = {"eager": lambda model: model, "ours": through("pjrt")}
    if what == "training step":
        found["Inductor"] = INDUCTOR
    else:
        found["ours, frozen"] = through("pjrt", frozen=True)
        found |= {"Inductor": through("inductor"), "Inductor, frozen": through("inductor", frozen=True)}
    return found


def timed(name: str, what: str, dtype: str) -> dict[str, float]:
    calls: dict[str, Run] = {}
    for way, compiled in ways(what).items():
        torch._dynamo.reset()
        calls[way] = KINDS[what](case(name, batch=BATCH), compiled, dtype)
        calls[way]()
        calls[way]()
    if what == "training step":
        calls[ONE_PROGRAM] = one_program(case(name, batch=BATCH), dtype)
        for _ in range(3):
            calls[ONE_PROGRAM]()
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    return {
        way: min(taken)
        for way, taken in interleaved(calls, rounds=ROUNDS, batch_seconds=BATCH_SECONDS, clock=clock).items()
    }


def answer(unit: list[Any]) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {"seconds": timed(*unit)}
    except Exception as error:
        return {"left_out": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for output of models
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
