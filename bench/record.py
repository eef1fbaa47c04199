"""Recording `x + y` on 4x4, against eager execution on the CPU: from Python, and from C++."""

from __future__ import annotations

from collections.abc import Callable

import torch

from measure import Result, compare, compare_timed
from torch_pjrt import _C

TARGET = 0.85
COUNT = 1000


def operands(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(4, 4).to(device), torch.full((4, 4), 2.0).to(device)


def adds(device: str) -> Callable[[], None]:
    x, y = operands(device)

    def work() -> None:
        for _ in range(COUNT):
            x + y

    return work


def measure() -> list[Result]:
    recorded, eager = operands("pjrt"), operands("cpu")
    return [
        compare("record x + y, from Python", adds("pjrt"), adds("cpu"), TARGET, per=COUNT),
        compare_timed(
            "record x + y, from C++",
            lambda: (_C._bench_add(*recorded, 10 * COUNT) * 1e-9, _C._bench_add(*eager, 10 * COUNT) * 1e-9),
            TARGET,
            against="eager CPU",
        ),
    ]
