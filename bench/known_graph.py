"""A graph of 1,000 nodes that was compiled before: the time from the read to the execute call, against recording it."""

from __future__ import annotations

import random
import time

import torch

from measure import Result, compare_timed
from torch_pjrt import _C

# The calls have no period: a loop's iterations would run as several programs (Note [Loop rerolling]).
CALLS = random.Random(0).choices([torch.add, torch.sub], k=1000)


def record(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for call in CALLS:
        x = call(x, y)
    return x


def measure() -> list[Result]:
    x, y = torch.ones(4, 4).to("pjrt"), torch.ones(4, 4).to("pjrt")
    for _ in range(3):
        record(x, y).cpu()

    def timed() -> tuple[float, float]:
        start = time.perf_counter()
        result = record(x, y)
        recording = time.perf_counter() - start
        return _C._bench_prepare(result) * 1e-9, recording

    return [
        compare_timed(
            "known graph of 1,000 nodes: read to execute", timed, 0.25, against="recording it, from Python", rounds=100
        )
    ]
