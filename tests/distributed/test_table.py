"""All communication of torch.distributed is right or raises immediately, and ends if a rank has died."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fresh, ranks
from tests.distributed.table import SIZE, table
from tests.distributed.test_world import run

HERE = Path(__file__).parent
pytestmark = pytest.mark.host_memory


def test_every_function(server: fresh.Server, tmp_path: Path) -> None:
    """Processes are compared with gloo, and a world with the processes."""
    count = len(list(table()))
    assert ranks.run(server, HERE / "beside_gloo.py", SIZE, tmp_path) == [count] * SIZE
    assert int(run(server, "beside_processes", tmp_path)) > count / 2


def test_a_rank_that_dies(server: fresh.Server) -> None:
    assert ranks.run(server, HERE / "dying.py", 3) == [[]] * 3
