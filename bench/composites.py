"""Shows that unclaimed composites cost nothing: ten models, compiled with all composites and with none, timed
alternately.

TORCH_PJRT_BENCH_MODELS names some of the models, TORCH_PJRT_BENCH_ROUNDS is the number of rounds.
"""

from __future__ import annotations

import os

import torch
from compile_models import MODELS
from convolution import Run, inference, step
from tqdm import tqdm

from measure import Result, compare
from models.catalogue import case

TARGET = 1.03


def run_of(name: str, asked: str, *, train: bool) -> Run:
    torch.manual_seed(0)
    made = case(name, batch=4)
    made.model.train(train)
    compiled = torch.compile(made.model, backend="pjrt", dynamic=False, options={"composites": asked})
    return (step if train else inference)(made, compiled)


def measure() -> list[Result]:
    chosen = os.environ.get("TORCH_PJRT_BENCH_MODELS", ",".join(MODELS)).split(",")
    rounds = int(os.environ.get("TORCH_PJRT_BENCH_ROUNDS", "10"))
    results = []
    for name, train in tqdm([(name, train) for name in chosen for train in (False, True)]):
        torch._dynamo.reset()
        plain, grouped = (run_of(name, asked, train=train) for asked in ("none", "all"))
        what = f"{name}, {'training step' if train else 'inference'}, all composites"
        results.append(compare(what, grouped, plain, TARGET, against="none", rounds=rounds))
    return results
