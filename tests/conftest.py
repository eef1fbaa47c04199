"""What holds for every test."""

from collections.abc import Iterator

import pytest

import torch_pjrt
from tests import fresh


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    """A test reads its own counts, whichever tests ran before it in the same worker."""
    torch_pjrt.reset_metrics()


@pytest.fixture(scope="module")
def server() -> Iterator[fresh.Server]:
    server = fresh.Server()
    yield server
    server.close()
