"""Ranks that are processes: each way to begin them, and each collective beside gloo's of the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fresh, ranks

HERE = Path(__file__).parent


@pytest.mark.host_memory
@pytest.mark.parametrize(
    ("how", "size", "backend"),
    [
        ("none", 2, "undefined"),  # PyTorch's own word for it
        ("device", 2, "pjrt"),
        ("pjrt", 2, "pjrt"),
        ("pjrt", 4, "pjrt"),
        ("gloo", 2, "gloo"),
        ("cpu:gloo,pjrt:gloo", 2, "cpu:gloo,pjrt:gloo"),
        ("cpu:gloo,pjrt:pjrt", 2, "cpu:gloo,pjrt:pjrt"),
    ],
)
def test_collectives(server: fresh.Server, how: str, size: int, backend: str) -> None:
    """Their results are compared in each process, bit by bit."""
    for told in ranks.run(server, HERE / "collectives.py", size, how):
        assert told["backend"] == backend
        assert set(told["counted"]) >= {
            "c10d::allreduce_",
            "c10d::allreduce_coalesced_",
            "c10d::reduce_",
            "c10d::_reduce_scatter_base_",
            "c10d::_allgather_base_",
            "c10d::allgather_",
            "c10d::broadcast_",
            "c10d::alltoall_base_",
            "c10d::scatter_",
            "c10d::gather_",
            "c10d::send",
            "c10d::recv_",
        }
