"""What holds for every test of capture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing is compiled yet, and nothing stays compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
