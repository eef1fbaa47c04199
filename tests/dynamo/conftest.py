"""What holds for every test of torch.compile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import torch_pjrt


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing is compiled or counted yet, and nothing stays compiled."""
    torch._dynamo.reset()
    torch_pjrt.reset_metrics()
    yield
    torch._dynamo.reset()
