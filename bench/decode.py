"""GPT-2 (random weights) decoding one token after another with a static cache, batch 1, through torch.compile."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from measure import Result, compare
from models.language import gpt2


def step(
    model: torch.nn.Module,
    compiled: Callable[[torch.nn.Module], Callable[..., Any]],
    batch: int = 1,
    position: int = 40,
    length: int = 128,
) -> Callable[[], object]:
    """Returns a call that computes the token after `position` others, repeatedly, on the model's device."""
    from transformers import StaticCache

    model = model.eval()
    call, device = compiled(model), next(model.parameters()).device
    token, at = torch.full((batch, 1), 7, device=device), torch.tensor([position], device=device)
    with torch.no_grad():
        cache = StaticCache(config=model.config, max_cache_len=length)
        prompt = torch.zeros(batch, position, dtype=torch.long, device=device)
        model(prompt, past_key_values=cache, cache_position=torch.arange(position, device=device))

    @torch.no_grad()
    def work() -> object:
        for layer in cache.layers:  # the cache counts calls and would become full
            layer.cumulative_length.fill_(position)
        return call(token, past_key_values=cache, cache_position=at).logits

    return work


def through(backend: str) -> Callable[[torch.nn.Module], Callable[..., Any]]:
    return lambda model: torch.compile(model, backend=backend, fullgraph=True)


def measure() -> list[Result]:
    torch.manual_seed(0)
    model = gpt2()
    ours = step(copy.deepcopy(model), through("pjrt"))
    name = "GPT-2, decoding a token"
    return [
        compare(name, ours, step(copy.deepcopy(model), through("inductor")), 0.7, against="Inductor", rounds=15),
        compare(name, ours, step(model, lambda model: model), None, rounds=10),
    ]
