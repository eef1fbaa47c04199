"""GPT-2 (random weights) decoding one token after another with a static cache, batch 1, through torch.compile."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from measure import Result, compare
from models.language import gpt2

POSITION, LENGTH = 40, 128


def step(model: torch.nn.Module, backend: str | None) -> Callable[[], object]:
    """Computes the token after POSITION others, again and again."""
    from transformers import StaticCache

    model = copy.deepcopy(model).eval()
    call = torch.compile(model, backend=backend, fullgraph=True) if backend else model
    token, position = torch.tensor([[7]]), torch.tensor([POSITION])
    with torch.no_grad():
        cache = StaticCache(config=model.config, max_cache_len=LENGTH)
        model(torch.zeros(1, POSITION, dtype=torch.long), past_key_values=cache, cache_position=torch.arange(POSITION))

    @torch.no_grad()
    def work() -> object:
        return call(token, past_key_values=cache, cache_position=position).logits

    work()
    return work


def measure() -> list[Result]:
    torch.manual_seed(0)
    model = gpt2()
    ours = step(model, "pjrt")
    name = "GPT-2, decoding a token"
    return [
        compare(name, ours, step(model, "inductor"), 0.7, against="Inductor", rounds=15),
        compare(name, ours, step(model, None), None, rounds=10),
    ]
