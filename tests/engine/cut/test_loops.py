"""Loops: graphs that grow from round to round, and what is pending beside what is read."""

from __future__ import annotations

import pytest
import torch

import torch_pjrt

DEVICE = "pjrt"


def decoder(x: torch.Tensor, cache: torch.Tensor, position: int) -> torch.Tensor:
    """120 calls on a token, which keep something in a cache."""
    h = x
    for i in range(40):
        h = (h * 0.9 + 0.1 * i).tanh()
    cache[position % cache.shape[0]] = h[0]
    return h + cache.sum(0)


def generate(device: str, steps: int, reads: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Appends to a tensor whose last row is the next input; the loop reads something else, or nothing."""
    tokens, cache = torch.linspace(0, 1, 8).reshape(1, 8).to(device), torch.zeros(4, 8).to(device)
    other = torch.zeros(3, device=device)
    for step in range(steps):
        tokens = torch.cat([tokens, decoder(tokens[-1:], cache, 0)])
        if reads:
            other = other + 1
            assert other[0].item() == step + 1
        elif device == DEVICE:
            torch_pjrt.sync(tokens)
    return tokens.cpu(), cache.cpu()


@pytest.mark.parametrize("reads", [False, True])
def test_a_graph_that_grows_is_compiled_in_parts(reads: bool) -> None:
    for _ in range(2):
        with torch_pjrt.explain() as report:
            tokens, cache = generate(DEVICE, 12, reads)
        expected_tokens, expected_cache = generate("cpu", 12, reads)
        torch.testing.assert_close(tokens, expected_tokens)
        torch.testing.assert_close(cache, expected_cache)
    with torch_pjrt.explain() as report:
        generate(DEVICE, 14, reads)
    # Lengths 13 and 14 are new: a slice and a concatenation each.
    assert max((graph.nodes for graph in report.graphs if graph.source != "memory"), default=0) <= 4


def test_a_large_graph_beside_what_is_read_is_started() -> None:
    def step(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        x = decoder(x, torch.zeros(4, 8, device=DEVICE), 0)
        assert (flag + 1).sum().item() == 6
        return x

    x, flag = torch.ones(1, 8).to(DEVICE), torch.ones(3).to(DEVICE)
    for _ in range(2):
        x = step(x, flag)
    torch_pjrt.reset_metrics()
    for _ in range(5):
        x = step(x, flag)
    metrics = torch_pjrt.metrics()
    assert metrics["graphs_compiled"] == 0
    assert metrics["syncs_by_cause"] == {"read of an element": 5, "a large graph beside what was read": 5}
    small = torch.ones(4).to(DEVICE) * 3  # stays pending: it is cheap, and may not be wanted
    (flag + 1).sum().item()
    assert torch_pjrt.metrics()["executions"] == 11
    del small
