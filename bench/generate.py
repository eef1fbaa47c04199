"""generate() of transformers, 128 tokens of GPT-2 (random weights) with a static cache, on the device and compiled."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import torch_pjrt
from measure import Result, count

TOKENS, PROMPT = 128, 16


def generation(model: GPT2LMHeadModel) -> Callable[[], list[int]]:
    torch.manual_seed(0)
    prompt = torch.randint(0, 50_000, (1, PROMPT)).to(model.device)

    @torch.no_grad()
    def work() -> list[int]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=TOKENS, do_sample=False,
                pad_token_id=0, cache_implementation="static", disable_compile=True,
            )[0].tolist()  # fmt: skip

    return work


def measured(work: Callable[[], list[int]]) -> tuple[float, list[int]]:
    start = time.perf_counter()
    tokens = work()
    return time.perf_counter() - start, tokens


def measure() -> list[Result]:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(eos_token_id=None)).eval()
    compiled = copy.deepcopy(model)
    compiled.forward = torch.compile(compiled.forward, backend="pjrt")
    lazy = copy.deepcopy(model).to("pjrt")
    eager_work = generation(model)
    eager = min(measured(eager_work)[0] for _ in range(2))
    expected = eager_work()
    results = []
    for name, work in (("torch.compile", generation(compiled)), ('device="pjrt"', generation(lazy))):
        torch_pjrt.reset_metrics()
        first, tokens = measured(work)
        same = sum(a == b for a, b in zip(tokens, expected, strict=True)) / len(expected)
        compiles = torch_pjrt.metrics()["graphs_compiled"]
        again = min(measured(work)[0] for _ in range(2))
        what = f"generate(), {TOKENS} tokens, {name}"
        results += [
            Result(what, again, eager, again / eager, 1.0),
            Result(f"{what}: the first time", first, eager, first / eager, None),
            count(f"{what}: compiles", compiles, 3, "compiles"),
            Result(f"{what}: tokens as in eager", 100 * same, 100, same, None, unit="%"),
        ]
    return results
