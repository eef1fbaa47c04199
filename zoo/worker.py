"""Computes cells: reads a line of JSON, writes a line. The conductor ends it if a cell takes too long."""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import time
import traceback
import warnings
from typing import Any

import torch

from torch_pjrt.errors import ValueNeeded
from zoo.cell import Cell
from zoo.entries import ENTRIES, settings
from zoo.model import model, seeded
from zoo.reference import STEPS, Inapplicable, Reference, after_step, least
from zoo.values import host

CALLS = 10  # before a call is timed
SLOW = 3.0  # of eager's processor time
SHORTEST = 2e-4  # seconds: shorter eager calls count as this long
LONGEST = 2.0  # seconds: a call that takes longer is not repeated for the timing


@functools.lru_cache(maxsize=4)
def reference(name: str, what: str, dtype: str) -> Reference | str:
    """Returns CPU eager's results, or the reason why there are none."""
    try:
        return Reference(model(name), what, getattr(torch, dtype))
    except Inapplicable as reason:
        return str(reason)
    except Exception as error:
        return words_of(error)


def words_of(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400]


def place_of(error: BaseException) -> str:
    """Returns the place in the package where it was raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/torch_pjrt/" in f.filename]
    return f"{frames[-1].filename.rpartition('/torch_pjrt/')[2]}:{frames[-1].lineno}" if frames else ""


def answer(cell: Cell) -> dict[str, Any]:
    right = reference(cell.model, cell.what, cell.dtype)
    if isinstance(right, str):
        return {"outcome": "none", "words": right}
    entry = ENTRIES[cell.entry]
    started = time.process_time()
    made = model(cell.model).built(getattr(torch, cell.dtype))
    made.module.train(cell.what == "step")
    seeded()
    try:
        prepared = entry.prepare(made, cell.what)
        if cell.what == "step":
            for _ in range(STEPS):
                loss = prepared.call()
            found = host(prepared.values(loss)) if prepared.values else after_step(prepared.made, loss)
        else:
            found = host(prepared.call())
    except Inapplicable as reason:
        return {"outcome": "none", "words": str(reason)}
    except Exception as error:
        outcome = "data-dependent" if isinstance(error, ValueNeeded) else "refused"
        return {"outcome": outcome, "words": words_of(error), "place": place_of(error)}
    try:
        words = right.wrong(found)
    except Inapplicable as reason:
        return {"outcome": "none", "words": str(reason)}
    if words:
        return {"outcome": "wrong", "words": words}
    taken = time.process_time() - started
    if not (entry.is_timed and settings.is_timed):
        return {"outcome": "right", "seconds": round(taken, 2)}

    def call() -> Any:
        result = prepared.call()
        if prepared.wait:
            prepared.wait()
        return result

    try:
        if least(call, 1) > LONGEST:
            return {"outcome": "right", "seconds": taken}
        for _ in range(CALLS - STEPS):
            result = call()
        if cell.what == "forward" and (words := right.wrong(host(result))):
            return {"outcome": "wrong", "words": f"call {CALLS}: {words}"}
        ratio = least(call) / max(right.seconds(), SHORTEST)
    except Exception as error:
        return {"outcome": "wrong", "words": f"a later call: {words_of(error)}"}
    outcome = "slow" if ratio > SLOW else "right"
    words = f"{ratio:.1f} of eager's time" if outcome == "slow" else ""
    return {"outcome": outcome, "words": words, "ratio": round(ratio, 2), "seconds": round(taken, 2)}


def main() -> None:
    vars(settings).update(json.loads(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for output of models
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    for line in sys.stdin:
        answers.write(json.dumps(answer(Cell(**json.loads(line)))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
