"""Programs whose graphs hardly recur, as functions of the device. Their results are comparable with the CPU's."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


def _filled(rows: list[torch.Tensor]) -> torch.Tensor:
    batch = rows[0].new_zeros(5, 6)
    for i, row in enumerate(rows):
        batch[i] = row
    return batch


DRAWS: dict[str, Callable[[random.Random, list[torch.Tensor]], torch.Tensor]] = {
    "stack": lambda rng, pieces: torch.stack(rng.choices(pieces, k=8)),
    "cat": lambda rng, pieces: torch.cat([x.view(1, 6) for x in rng.choices(pieces, k=8)]),
    "cat of views and copies": lambda rng, pieces: torch.cat(
        [x[None].clone() if rng.random() < 0.5 else x[None] for x in rng.choices(pieces, k=6)]
    ),
    "padded": lambda rng, pieces: nn.utils.rnn.pad_sequence(
        [pieces[0]] + [x[: rng.randint(1, 6)] for x in rng.choices(pieces, k=5)], batch_first=True, padding_value=-1.0
    ),
    "one by one": lambda rng, pieces: _filled(rng.choices(pieces, k=5)),
}  # fmt: skip


def drawn_batches(device: str, name: str = "cat") -> torch.Tensor:
    """A replay buffer: each step takes other pieces, some of them views of one tensor."""
    rng = random.Random(0)
    rows = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(10, 6)
    pieces = [row.to(device) for row in rows]
    pieces += list(rows.add(0.5).to(device))
    w = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(6, 4).to(device).requires_grad_()
    results = []
    for _ in range(8):
        loss = (DRAWS[name](rng, pieces) @ w).tanh().square().sum()
        loss.backward()
        assert w.grad is not None
        results += [loss.item(), w.grad.sum().item()]
        w.grad = None
    return torch.tensor(results)


def _network(x: torch.Tensor) -> torch.Tensor:
    for i in range(20):
        x = (x * 0.9 + 0.01 * i).tanh()
    return x


def growing_tokens(device: str) -> torch.Tensor:
    """Like generate(): tokens and a mask grow, a counter counts, and the network sees one token and a fixed mask."""
    table = torch.linspace(-1, 1, 80).reshape(10, 8).to(device)
    tokens, mask = torch.tensor([[1, 2, 3]], device=device), torch.ones(1, 3, dtype=torch.long, device=device)
    counter = torch.tensor(3, device=device)
    for _ in range(12):
        position = mask.cumsum(1)[:, -1:] - 1
        visible = (torch.arange(32, device=device) <= counter).to(torch.float32)
        hidden = _network(table[tokens[:, -1] + 0] + position) * visible.mean()
        next_token = (hidden.sum(1, keepdim=True) * 1000).long().abs() % 10
        tokens, mask = torch.cat([tokens, next_token], 1), torch.cat([mask, mask.new_ones(1, 1)], 1)
        counter += 1
        if (tokens[:, -1] == 11).all():
            break
    return tokens


def growing_caches(device: str) -> torch.Tensor:
    """Layers with a cache each, to which every iteration appends."""
    h = torch.linspace(0, 1, 8).reshape(1, 8).to(device)
    caches = [torch.full((1, 8), i / 9).to(device) for i in range(6)]
    for step in range(10):
        for i, cache in enumerate(caches):
            caches[i] = torch.cat([cache, h])
            h = (h @ caches[i].T).softmax(-1) @ caches[i]
            for _ in range(4):
                h = (h * 0.9 + 0.1).tanh()
        if step % 2:
            assert h.isfinite().all()
    return torch.cat([h, *caches])


def _step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def other_lengths(device: str) -> torch.Tensor:
    """Trains on sentences of ever new lengths."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.Embedding(50, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 3)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    losses = []
    for length in (8, 12, 9, 10, 11):
        x, y = torch.randint(50, (4, length)).to(device), torch.randint(3, (4,)).to(device)
        losses.append(_step(optimizer, F.cross_entropy(net(x).mean(1), y)))
    return torch.tensor(losses)


def teacher_forcing(device: str) -> torch.Tensor:
    """A decoder whose input is randomly the right word or its own."""
    torch.manual_seed(0)
    embedding, cell, head = (m.to(device) for m in (nn.Embedding(23, 6), nn.RNNCell(6, 9), nn.Linear(9, 23)))
    optimizer = torch.optim.SGD([*embedding.parameters(), *cell.parameters(), *head.parameters()], 0.1)
    chance, losses = random.Random(1), []
    for _ in range(6):
        words = torch.randint(0, 23, (9, 5)).to(device)
        hidden, word, loss = torch.zeros(5, 9, device=device), words[0], torch.zeros((), device=device)
        for t in range(1, 9):
            hidden = cell(embedding(word), hidden)
            scores = head(hidden)
            loss = loss + F.cross_entropy(scores, words[t])
            word = words[t] if chance.random() < 0.5 else scores.argmax(1)
        losses.append(_step(optimizer, loss))
    return torch.tensor(losses)


def dropped_layers(device: str) -> torch.Tensor:
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(7), nn.Linear(7, 7), nn.GELU()) for _ in range(6))
    x, chance, losses = torch.randn(4, 7).to(device), random.Random(3), []
    optimizer = torch.optim.Adam(layers.to(device).parameters(), lr=1e-2)
    for _ in range(6):
        y = x
        for layer in layers:
            y = y + layer(y) if chance.random() < 0.7 else y
        losses.append(_step(optimizer, y.square().mean()))
    return torch.tensor(losses)


PROGRAMS: dict[str, Callable[[str], torch.Tensor]] = {
    f.__name__: f
    for f in (drawn_batches, growing_tokens, growing_caches, other_lengths, teacher_forcing, dropped_layers)
}


def random_program(seed: int, n: int, device: str) -> list[torch.Tensor]:
    """Draws calls that are equal for every n: on tensors of n rows, on others, on integers, in place and through
    views."""
    rng = random.Random(seed)
    fixed = [torch.linspace(-1, 1, 32, device=device).view(4, 8)]
    rows = [torch.linspace(0, 1, 8 * n, device=device).view(n, 8)]
    places = torch.zeros(3, 2, 8, dtype=torch.int64, device=device)
    index = [torch.arange(n, device=device)]

    def a(tensors: list[torch.Tensor]) -> torch.Tensor:
        return tensors[rng.randrange(max(0, len(tensors) - 4), len(tensors))]

    def placed() -> None:
        first = min(n, 8)
        values = torch.arange(3 * first, device=device).view(3, first) + a(index).sum()
        places[:, rng.randrange(2)].index_copy_(1, index[0][:first].clone(), values)

    calls: list[Callable[[], object]] = [
        lambda: fixed.append((a(fixed) * 0.9 + 0.1).tanh()),
        lambda: fixed.append(a(fixed) + a(rows).sum(0) * 0.1),
        lambda: fixed.append(a(fixed) + places.sum() % 5 * 0.01),
        lambda: a(fixed)[:, ::2].mul_(0.9),
        lambda: a(fixed).diagonal().mul_(0.5),
        lambda: rows.append((a(rows) * 0.7 - 0.1).sin()),
        lambda: rows.append((a(rows) @ a(fixed).T @ a(fixed)).tanh()),
        lambda: rows.append(torch.cat([a(rows)[:1], a(rows)[1:] * 0.5])),
        lambda: a(rows)[rng.randrange(2) :].add_(0.01),
        lambda: a(rows).select(1, rng.randrange(8)).copy_(a(rows)[:, 0]),
        lambda: index.append((a(index) * 2 + places.max()) % 97),
        lambda: places[:, rng.randrange(2)].add_(a(index).max()),
        lambda: places.view(-1)[rng.randrange(5) :: 3].add_(1),
        placed,
    ]
    for _ in range(rng.randint(30, 60)):
        rng.choice(calls)()
    return [*fixed[-3:], *rows[-3:], *index[-3:], places]
