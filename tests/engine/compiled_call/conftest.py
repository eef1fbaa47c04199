"""Fixtures for every test of torch.compile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Resets Dynamo before and after the test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
