"""torch.use_deterministic_algorithms: a graph stays in one tier (Note [Tiers])."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.engine.tier.conftest import counts
from torch_pjrt import _C


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.host_memory
def test_under_deterministic_algorithms_one_tier_serves_for_good() -> None:
    """Two tiers would give a graph two results. PyTorch's kernels are deterministic, or raise that they aren't."""
    x = torch.linspace(-3, 3, 40 * 41).view(40, 41).to("pjrt")
    results = {tuple((x.sin().softmax(1) @ x.T).sum(0).tolist()) for _ in range(60)}
    assert len(results) == 1
    for i in range(50):
        x[i % 40, i % 41] = float(i)
        assert x[i % 40, i % 41].item() == i
    assert counts()[1] == 0


def test_where_graphs_are_compiled_first_all_are() -> None:
    _C.set_compile_policy("first")
    x = torch.linspace(-3, 3, 13 * 43).view(13, 43).to("pjrt")
    results = {tuple((x.sin().softmax(1) @ x.T).sum(0).tolist()) for _ in range(3)}
    assert len(results) == 1
    assert counts() == (0, 1)
