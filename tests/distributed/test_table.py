"""All communication of torch.distributed is right or raises immediately, and ends if a rank has died."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch.distributed
import torch.distributed._functional_collectives

from tests import fresh, ranks
from tests.distributed.table import LOCAL, SIZE, table
from tests.distributed.test_world import run

HERE = Path(__file__).parent
pytestmark = pytest.mark.host_memory


@pytest.mark.parametrize(
    ("module", "name"),
    [(torch.distributed, "dist"), (torch.distributed._functional_collectives, "functional")],
    ids=["dist", "functional"],
)
def test_every_function_has_a_row(module: ModuleType, name: str) -> None:
    names = [name for name in vars(module) if not re.search(r"^_|_inplace$|_backward$|_setup_context$", name)]
    functions = {
        name
        for name in names
        if name != "reduce_op"  # deprecated: looking at it warns
        and inspect.isfunction(function := getattr(module, name))
        and f"{function.__module__}.".startswith(f"{module.__name__}.")
    }
    used = set(re.findall(rf"\b{name}\.(\w+)", (HERE / "table.py").read_text()))
    assert functions - used == LOCAL & functions


def test_every_function(server: fresh.Server, tmp_path: Path) -> None:
    """Processes are compared with gloo, and a world with the processes."""
    count = len(list(table()))
    assert ranks.run(server, HERE / "beside_gloo.py", SIZE, tmp_path) == [count] * SIZE
    assert int(run(server, "beside_processes", tmp_path)) > count / 2


def test_a_rank_that_dies(server: fresh.Server) -> None:
    assert ranks.run(server, HERE / "waits/dying.py", 3) == [[]] * 3


@pytest.mark.parametrize("backend", ["pjrt", "cpu:gloo,pjrt:pjrt", "cpu:gloo,pjrt:gloo"])
@pytest.mark.sampled(1)
def test_tensors_of_different_devices(server: fresh.Server, backend: str) -> None:
    assert ranks.run(server, HERE / "mixing.py", 3, backend) == [8] * 3


def test_ranks_that_disagree(server: fresh.Server) -> None:
    assert ranks.run(server, HERE / "disagreeing.py", 3) == [21] * 3


OF_NCCL = "test_(?!ddp|nccl_high_priority_stream|get_backend$|post_localSGD_optimizer_step_reload)"


@pytest.mark.parametrize(
    ("size", "backend", "names", "least"),
    [
        (2, "gloo", "sparse_all_reduce|object_default|get_backend|sum_twice$|with_tag$|broadcast_full", 7),
        pytest.param(4, "gloo", "test_[ab]", 60, marks=pytest.mark.thorough),
        pytest.param(4, "gloo", "test_(?![ab]|ddp|monitored_barrier_allreduce)", 98, marks=pytest.mark.thorough),
        # The other trains on images of a million pixels, 252 times.
        pytest.param(4, "gloo", "test_ddp(?!_uneven_inputs$)", 56, marks=pytest.mark.thorough),
        pytest.param(4, "nccl", OF_NCCL, 77, marks=pytest.mark.thorough),
    ],
)
def test_pytorchs_own(server: fresh.Server, tmp_path: Path, size: int, backend: str, names: str, least: int) -> None:
    for passed, failed, _ in ranks.run(server, HERE / "pytorchs/own.py", size, backend, names, tmp_path):
        assert passed >= least
        assert failed == {}


def test_bases_of_pytorchs_own(server: fresh.Server, tmp_path: Path) -> None:
    assert ranks.run(server, HERE / "pytorchs/bases.py", 2, tmp_path) == [5, 5]
