"""Waits for other ranks: Ctrl-C ends them, and late ranks are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

import torch_pjrt.plugins
from tests import fresh, ranks
from tests.interrupts import seconds_to_interrupts
from tests.plugin_library import plugin_library

HERE = Path(__file__).parent
pytestmark = pytest.mark.host_memory

RENDEZVOUS = """
from datetime import timedelta
import torch.distributed as dist
os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": FREE_PORT, "RANK": RANK, "WORLD_SIZE": "2"}
interrupted(lambda: dist.init_process_group("pjrt", timeout=timedelta(seconds=60)))
assert not dist.is_initialized()
assert (torch.ones(2, device="pjrt") + 1).tolist() == [2, 2]
print("usable")
"""

# Rank 1 starts and takes no part in what follows.
TOGETHER = """
import subprocess
from datetime import timedelta
import torch.distributed as dist
os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": FREE_PORT, "WORLD_SIZE": "2"}
begin = "import torch.distributed as dist; dist.init_process_group('pjrt'); input(); import os; os._exit(0)"
command = [sys.executable, "-c", "import torch, torch_pjrt; " + begin]
other = subprocess.Popen(command, env=os.environ | {"RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
                         stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
dist.init_process_group("pjrt", timeout=timedelta(seconds=60))
x = torch.ones(2, device="pjrt") * 3
x.tolist()
interrupted(lambda: dist.all_reduce(x))
assert x.tolist() == [3, 3]
assert (x + 1).tolist() == [4, 4]
if torch_pjrt._C.platform_name() != "cuda":
    try:
        dist.all_reduce(x)
    except RuntimeError as error:
        assert "c10d::allreduce_) was interrupted while it waited for other ranks" in str(error), error
        assert "destroy_process_group" in str(error)
    else:
        sys.exit("a group whose ranks are out of step went on")
other.communicate(b"end")
print("usable", flush=True)
os._exit(0)  # the group's own threads wait for the other rank
"""


def of_gpus(folder: Path) -> dict[str, str]:
    host = torch_pjrt.plugins.find_plugins()["xla_cpu_pjrt"].path
    library = folder / "xla_cuda_ranks.so"
    plugin = plugin_library(HERE.parent / "pjrt/ranks.c", library, f"-I{Path(host).parent / 'include'}")
    return {"TORCH_PJRT_PLUGIN": str(plugin), "TORCH_PJRT_TEST_PLUGIN": host, "TORCH_PJRT_CACHE": "0"}


def program(text: str, rank: int = 0) -> str:
    return text.replace("FREE_PORT", f'"{ranks.free_port()}"').replace(": RANK", f': "{rank}"')


@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_while_ranks_meet(rank: int) -> None:
    """Both ranks are interrupted: the one that hosts the store, and the one that looks for it."""
    assert max(seconds_to_interrupts(program(RENDEZVOUS, rank), before=1.0)) < 1


def test_ctrl_c_while_a_plugin_meets_the_others(tmp_path: Path) -> None:
    """The plugin waits on a thread of its own, which returns."""
    met = "import torch_pjrt.adapt.rendezvous as m\nm.join = lambda *_: ({0: 'here', 1: 'here'}, 'met')\n"
    took = seconds_to_interrupts(met + program(RENDEZVOUS), before=2.0, **of_gpus(tmp_path))
    assert max(took) < 1


def test_ctrl_c_while_a_collective_waits() -> None:
    assert max(seconds_to_interrupts(program(TOGETHER), before=1.0)) < 1


def test_ctrl_c_while_a_program_of_several_processes_waits(tmp_path: Path) -> None:
    assert max(seconds_to_interrupts(program(TOGETHER), before=2.0, **of_gpus(tmp_path))) < 1


@pytest.mark.parametrize("gpus", [False, True])
def test_who_is_late_is_reported(server: fresh.Server, tmp_path: Path, gpus: bool) -> None:
    """Each waiting rank reports it once per wait."""
    environment = of_gpus(tmp_path) if gpus else {}
    line = 1 + (HERE / "waits/late.py").read_text().splitlines().index("dist.all_reduce(x)")
    first, other, last = ranks.run(
        server, HERE / "waits/late.py", 3, tmp_path, TORCH_PJRT_COLLECTIVE_WARN_SECONDS="0.8", **environment
    )
    assert other == []
    for rank, reported in ((0, first), (2, last)):
        assert [level for level, _ in reported] == ["WARNING"] * 3
        rendezvous, collective, group = (line for _, line in reported)
        assert rendezvous.startswith(f"torch.distributed.init_process_group: rank {rank} has waited ")
        assert rendezvous.endswith(" s: ranks [1] of [0, 1, 2] are missing")
        assert collective.startswith(f"rank {rank} has waited ")
        assert "s for c10d::allreduce" in collective
        assert f".py:{line}): ranks [1] of [0, 1, 2] have not come. All ranks of a group have to call its" in collective
        assert group.startswith(f"torch.distributed.new_group: rank {rank} has waited ")


@pytest.mark.parametrize("where", ["rendezvous", "store", "collective"])
def test_who_has_not_come_is_named(server: fresh.Server, tmp_path: Path, where: str) -> None:
    assert ranks.run(server, HERE / "waits/absent.py", 2, where, tmp_path) == [[], []]


def test_a_second_group_takes_no_addresses_of_the_first(server: fresh.Server, tmp_path: Path) -> None:
    """A launcher's store keeps them."""
    assert ranks.run(server, HERE / "waits/absent.py", 2, "again", tmp_path) == [[], []]
