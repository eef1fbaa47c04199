"""Ranks that are processes of a plugin for GPUs, with one client. tests/pjrt/ranks.c acts as such a plugin."""

from __future__ import annotations

from pathlib import Path

import pytest

import torch_pjrt.plugins
from tests import fresh, ranks
from tests.plugin_library import plugin_library

HERE = Path(__file__).parent
pytestmark = pytest.mark.host_memory  # a property of the plugin behind the one that acts as CUDA's
QUICK = {"TORCH_PJRT_XLA_OPTIONS": "xla_backend_optimization_level=0"}
ON_HOST = {"c10d::reduce_", "c10d::alltoall_base_", "c10d::scatter_", "c10d::gather_", "c10d::send", "c10d::recv_"}


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns the environment of a process that is one of the ranks."""
    host = torch_pjrt.plugins.find_plugins()["xla_cpu_pjrt"].path
    library = tmp_path_factory.mktemp("gpus") / "xla_cuda_ranks.so"
    plugin = plugin_library(HERE.parent / "pjrt/ranks.c", library, f"-I{Path(host).parent / 'include'}")
    return {"TORCH_PJRT_PLUGIN": str(plugin), "TORCH_PJRT_TEST_PLUGIN": host, "TORCH_PJRT_CACHE": "0", **QUICK}


def test_collectives(server: fresh.Server, gpus: dict[str, str]) -> None:
    """Results are gloo's on the CPU, bit by bit, and collectives are programs, except those that name single ranks,
    which go through the host. The plugin raises if a client has no place among the others, or no store."""
    for reported in ranks.run(server, HERE / "collectives.py", 4, "pjrt", "few", **gpus):
        assert reported["backend"] == "pjrt"
        assert set(reported["counted"]) == ON_HOST
        assert set(reported["across"]) >= {"all_reduce", "all_gather", "reduce_scatter", "broadcast"}


def test_training(server: fresh.Server, gpus: dict[str, str], tmp_path: Path) -> None:
    """Parameters are those of whole batches on the CPU, and no collective goes through the host."""
    ways = ["FSDP2", "tensor parallel compiled"]
    for reported in ranks.run(server, HERE / "training.py", 2, tmp_path, *ways, **gpus):
        assert {way: set(counted) for way, counted in reported.items()} == {way: {"syncs"} for way in ways}


@pytest.mark.parametrize(
    ("size", "cases"),
    [
        (2, ["by_hand", "data_parallel", "fsdp", "tensors"]),
        pytest.param(4, ["both", "apart"], marks=pytest.mark.thorough),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else str(value),
)
def test_captured_steps(server: fresh.Server, gpus: dict[str, str], size: int, cases: list[str]) -> None:
    """A step is one program of all processes, whose groups are the world's."""
    assert ranks.run(server, HERE / "captured.py", size, *cases, **gpus) == [cases] * size


@pytest.mark.parametrize("case", ["together", "unnumbered", "late", "missing", "failed"])
def test_clients(server: fresh.Server, gpus: dict[str, str], case: str) -> None:
    limit = "200" if case == "missing" else "60000"
    assert ranks.run(server, HERE / "gpus.py", 2, case, TORCH_PJRT_TEST_TIMEOUT=limit, **gpus) == [[case]] * 2
