"""Note [Variety]: programs whose Python decides by chance record the same calls in ever new orders."""

from __future__ import annotations

import random

import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt

ROUNDS, WORDS = 9, 23


def teacher_forcing(device: str, steps: int) -> tuple[list[float], list[int]]:
    """A decoder that is fed by chance with the right word or with its own: losses, and what each step compiles."""
    torch.manual_seed(0)
    embedding, cell, head = (m.to(device) for m in (nn.Embedding(WORDS, 6), nn.RNNCell(6, 9), nn.Linear(9, WORDS)))
    optimizer = torch.optim.SGD([*embedding.parameters(), *cell.parameters(), *head.parameters()], 0.1)
    chance, generator = random.Random(1), torch.Generator().manual_seed(2)
    losses, compiled = [], []
    for _ in range(steps):
        torch_pjrt.reset_metrics()
        words = torch.randint(0, WORDS, (ROUNDS, 5), generator=generator).to(device)
        hidden, word, loss = torch.zeros(5, 9, device=device), words[0], torch.zeros((), device=device)
        for t in range(1, ROUNDS):
            hidden = cell(embedding(word), hidden)
            scores = head(hidden)
            loss = loss + F.cross_entropy(scores, words[t])
            word = words[t] if chance.random() < 0.5 else scores.argmax(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        compiled.append(torch_pjrt.metrics()["graphs_compiled"])
    return losses, compiled


def test_steps_that_differ_by_chance_settle() -> None:
    losses, compiled = teacher_forcing("pjrt", 14)
    expected, _ = teacher_forcing("cpu", 14)
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
    assert compiled[:3] == [1, 1, 1]
    assert sum(compiled[9:]) <= 1, compiled


def test_layers_that_are_dropped() -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(7), nn.Linear(7, 7), nn.GELU()) for _ in range(12)).to("pjrt")
    other = nn.ModuleList(nn.Sequential(nn.LayerNorm(7), nn.Linear(7, 7), nn.GELU()) for _ in range(12))
    other.load_state_dict(layers.state_dict())
    chance, compiled = random.Random(3), []
    x = torch.randn(4, 7)
    for _ in range(12):
        kept = [chance.random() < 0.7 for _ in layers]
        torch_pjrt.reset_metrics()
        gradients = []
        for model, y in ((layers, x.to("pjrt")), (other, x)):
            for keep, layer in zip(kept, model, strict=True):
                y = y + layer(y) if keep else y
            model.zero_grad()
            y.square().mean().backward()
            gradients.append([p.grad.cpu() for p in model.parameters() if p.grad is not None])
        torch.testing.assert_close(*gradients)
        compiled.append(torch_pjrt.metrics()["graphs_compiled"])
    assert sum(compiled[8:]) <= 4, compiled


def test_graphs_that_come_back_stay_whole() -> None:
    """A training that logs something now and then has some graphs of the same calls, which are run often."""
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.LayerNorm(5)) for _ in range(16))).to("pjrt")
    x, held = torch.ones(3, 5, device="pjrt"), []
    for i in range(12):
        torch_pjrt.reset_metrics()
        results = [x]
        for layer in layers:
            results.append(layer(results[-1]))
        results[-1].square().mean().backward()
        held.append(results[i % 3 * 4 + 2])  # so these are three graphs
        layers.zero_grad()
        torch_pjrt.sync()
        assert torch_pjrt.metrics()["executions"] <= 2
