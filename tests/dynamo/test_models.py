"""Every model of the catalogue through torch.compile: one graph, no fallback, results and steps as in eager."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torch_pjrt
from models.catalogue import CATALOGUE, case
from tests.models.closeness import assert_all_as_close, assert_as_close, assert_as_close_after_steps
from tests.models.test_catalogue import Run, double, farther, nudged
from tests.place import home

STEPS = 3


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.sampled(6, part=1)  # others lazily, in tests/models/test_catalogue.py
def test_model(name: str) -> None:
    made = case(name, small=True)
    where = home()
    to_float64 = lambda x: x.double() if isinstance(x, nn.Module) else double(x)  # noqa: E731
    moves = (lambda x: x, nudged, to_float64)
    eager, other, true = (Run(name, made, lambda x, move=move: move(x.to(where))) for move in moves)
    compiled = Run(name, made, lambda x: x.to(where))
    compiled.model = torch.compile(compiled.model, backend="pjrt", fullgraph=True)
    torch_pjrt.reset_metrics()
    with torch_pjrt.strict_mode():
        assert_as_close("output", compiled.evaluate(), eager.evaluate(), true.evaluate())
        assert torch_pjrt.metrics()["executions"] == 1
        for step in range(STEPS):
            if step == 1:
                torch_pjrt.reset_metrics()
            actual, own, near, exact = (run.step() for run in (compiled, eager, other, true))
            assert_as_close(f"loss {step}", actual, farther(own, near, exact), exact)
            if step == 0:
                assert_all_as_close("gradient of", compiled.gradients(), eager.gradients(), true.gradients())
    metrics = torch_pjrt.metrics()
    assert metrics["graphs_compiled"] == 0, "the second step compiled"
    assert metrics["executions"] == 2 * (STEPS - 1), "forward and backward are one program each"
    assert metrics["host_fallbacks"] == {}
    assert_as_close_after_steps("after the steps,", compiled.state(), eager.state(), other.state(), true.state())


def test_gpt2_decodes_with_a_cache() -> None:
    """There is one graph and one program for every position, and the cache is written in place."""
    from transformers import StaticCache

    from models.language import gpt2

    where = home()
    torch.manual_seed(0)
    model = gpt2(2, vocab_size=100, n_embd=32, n_head=4, n_positions=64).eval().to(where)
    fast = torch.compile(model, backend="pjrt", fullgraph=True)

    def decode(step: nn.Module) -> list[int]:
        cache = StaticCache(config=model.config, max_cache_len=32)
        prompt = torch.tensor([[5, 6, 7]], device=where)
        logits = model(prompt, past_key_values=cache, cache_position=torch.arange(3, device=where)).logits
        tokens = []
        for position in range(3, 11):
            tokens.append(logits[:, -1].argmax(-1, keepdim=True))
            logits = step(
                tokens[-1], past_key_values=cache, cache_position=torch.tensor([position], device=where)
            ).logits
        return [int(token) for token in tokens]

    with torch.no_grad(), torch_pjrt.strict_mode():
        expected = decode(model)
        torch_pjrt.reset_metrics()
        assert decode(fast) == expected
        assert decode(fast) == expected
    metrics = torch_pjrt.metrics()
    assert metrics["graphs_compiled"] == 1
    assert metrics["executions"] == 16
    assert metrics["host_transfer_bytes"] == 0
