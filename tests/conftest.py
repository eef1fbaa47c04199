"""What holds for every test."""

import os
from collections.abc import Iterator

import pytest

import torch_pjrt
from tests import fresh

# Programs from earlier runs of the tests would be loaded where a test counts compiles. tests/engine/test_disk_cache.py
# turns the disk cache on, in processes and folders of its own.
os.environ["TORCH_PJRT_CACHE"] = "0"


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    """A test reads its own counts, whichever tests ran before it in the same worker."""
    torch_pjrt.reset_metrics()


@pytest.fixture(scope="module")
def server() -> Iterator[fresh.Server]:
    server = fresh.Server()
    yield server
    server.close()
