"""A world in one process: its collectives, reads, DTensor over it, and refused calls."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

from tests import fresh

SCRIPTS = Path(__file__).parent / "worlds"
QUICK = {"TORCH_PJRT_XLA_OPTIONS": "xla_backend_optimization_level=0"}
STEPS = [
    ["fsdp", "fsdp adamw", "fsdp uneven kept", "fsdp recomputed"],
    ["fsdp bfloat16", "fsdp in two", "fsdp regathered", "replicate"],
    ["hsdp", "fsdp tp", "ddp", "ddp in two", "ddp at once"],
    ["between", "refused", "buffers"],
]
pytestmark = pytest.mark.host_memory  # the CPU has as many devices as are asked for


def run(server: fresh.Server, script: str, *arguments: object, **environment: str) -> str:
    """Returns the last line that the script prints. Compiles are fast: programs run only a few times."""
    source = (SCRIPTS / f"{script}.py").read_text()
    (result,) = server.run(fresh.Job(source, arguments, {"TORCH_PJRT_CPU_DEVICES": "4", **QUICK, **environment}))
    return result.out.splitlines()[-1] if result.out else ""


def test_collectives(server: fresh.Server) -> None:
    assert json.loads(run(server, "collectives"))["checked"] > 300


@pytest.mark.parametrize("kernels", ["1", pytest.param("0", marks=pytest.mark.thorough)])
def test_reading(server: fresh.Server, kernels: str) -> None:
    assert run(server, "reading", TORCH_PJRT_LIBRARY_KERNELS=kernels) == "read"


def test_refusals(server: fresh.Server) -> None:
    assert int(run(server, "refusals")) == 41


@pytest.mark.parametrize("case", ["large", "late", "counted"])
def test_beginning(server: fresh.Server, case: str) -> None:
    run(server, "beginning", case)


@pytest.mark.parametrize(
    ("how", "environment"),
    [("rank=0, world_size=3", {}), ("world_size=3", {}), ("timeout=None", {"WORLD_SIZE": "3", "LOCAL_RANK": "0"})],
)
def test_as_many_devices_as_ranks_without_being_asked(
    server: fresh.Server, how: str, environment: dict[str, str]
) -> None:
    program = (
        "import torch, torch_pjrt, torch.distributed as dist\n"
        f"dist.init_process_group('pjrt', {how})\n"
        "x = torch.ones(2, device='pjrt'); dist.all_reduce(x); assert x.tolist() == [3, 3]"
    )
    server.run(fresh.Job(program, (), environment))


def test_redistribution(server: fresh.Server, tmp_path: Path) -> None:
    run(server, "oracle", tmp_path / "wanted")
    assert json.loads(run(server, "redistributing", tmp_path / "wanted"))["checked"] == 324


@pytest.mark.parametrize(
    "how", ["tp", "tp adamw", "sp", "fsdp", "fsdp adamw", "fsdp kept", "fsdp uneven", "hsdp", "fsdp tp", "ddp"]
)
@pytest.mark.sampled(2)  # the others are among the captured steps
def test_training(server: fresh.Server, how: str) -> None:
    assert json.loads(run(server, "training", how)) == [how]


@pytest.mark.parametrize(
    "what",
    ["clipping", "mixed precision", "recomputing", "gathering", pytest.param("optimizers", marks=pytest.mark.thorough)],
)
def test_techniques(server: fresh.Server, what: str) -> None:
    assert json.loads(run(server, "techniques", what))[-1] == what


@pytest.mark.parametrize(
    "what", ["functions", "placements", "training", "sharding", "steps", "branches", "threads", "ranks"]
)
def test_compiling(server: fresh.Server, what: str) -> None:
    assert json.loads(run(server, "compiling", what)) == what


@pytest.mark.parametrize("group", STEPS, ids=lambda group: group[0])
def test_captured_steps(server: fresh.Server, group: list[str]) -> None:
    assert json.loads(run(server, "stepping", *group)) == group


def test_dimensions_that_do_not_divide(server: fresh.Server) -> None:
    assert json.loads(run(server, "uneven")) == 43


def test_context_parallel(server: fresh.Server) -> None:
    assert run(server, "attending") == "5"


@pytest.mark.thorough
def test_drawing(server: fresh.Server) -> None:
    assert int(run(server, "drawing")) == 52


def test_checkpoints(server: fresh.Server, tmp_path: Path) -> None:
    assert int(run(server, "checkpointing", tmp_path)) > 40


def test_a_checkpoint_goes_on_in_a_world_of_another_size(server: fresh.Server, tmp_path: Path) -> None:
    for i, ranks in enumerate((4, 2, 3)):
        assert run(server, "smaller", ranks, 2 * i, tmp_path) == str(ranks)


@pytest.mark.thorough
def test_vocabulary(server: fresh.Server) -> None:
    assert int(run(server, "vocabulary")) > 500


@pytest.mark.parametrize("ranks", [pytest.param(4, marks=pytest.mark.thorough), 8])
def test_replicas_do_not_wait_for_ever(server: fresh.Server, ranks: int) -> None:
    assert run(server, "unread", ranks, TORCH_PJRT_CPU_DEVICES=str(ranks)) == "200"


def another_plugin() -> str | None:
    """Returns the path of a second plugin for CPUs: packages don't announce these as plugins."""
    if named := os.environ.get("TORCH_PJRT_TEST_SECOND_PLUGIN"):
        return named
    for package in ("lammps_jax_pjrt_cpu", "fastatomstruct_xla_cpu"):
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            return str(next(Path(folder).glob("*.so")))
    return None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", [pytest.param(4, marks=pytest.mark.thorough), 8])
def test_replicas_of_another_plugin_do_not_wait_for_ever(server: fresh.Server, ranks: int) -> None:
    """Plugins compute products by different libraries, and so a replica blocks different numbers of threads."""
    plugin = another_plugin()
    if plugin is None:
        pytest.skip("a second plugin for CPUs is not installed (lammps-jax-pjrt-cpu, or TORCH_PJRT_TEST_SECOND_PLUGIN)")
    assert run(server, "unread", ranks, TORCH_PJRT_CPU_DEVICES=str(ranks), TORCH_PJRT_PLUGIN=plugin) == "200"
