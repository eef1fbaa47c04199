"""The programs of docs/distributed.md run as they are."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import fresh, ranks
from tests.fresh import Job

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.host_memory
def test_the_example_under_torchrun() -> None:
    """The script itself checks that its losses are one device's, and that its checkpoint is read by a whole model."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    script = [ROOT / "examples/llama_torchrun.py", "--steps", "4"]
    result = subprocess.run([*command, *script], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(re.findall(r"^ +\d+ +\d\.\d{6} +\d\.\d{6}$", result.stdout, re.MULTILINE)) == 4
    assert "21 parameters in a checkpoint of 4 parts, read by one device" in result.stdout


def guide_programs() -> list[str]:
    text = (ROOT / "docs/distributed.md").read_text()
    return [textwrap.dedent(block) for block in re.findall(r"```py\n(.*?)```", text, re.DOTALL)]


@pytest.mark.host_memory
def test_the_program_of_the_guide(server: fresh.Server, tmp_path: Path) -> None:
    (program, *_) = guide_programs()
    script = tmp_path / "guide.py"
    counted = "import json\nprint(json.dumps(torch_pjrt.metrics()['host_fallbacks']))\n"
    script.write_text(f"import torch_pjrt\n{program}{counted}")  # the server's torch has not loaded the backend yet
    for reported in ranks.run(server, script, 2):
        assert reported == {"c10d::_allgather_base_": 1, "c10d::_reduce_scatter_base_": 1}


@pytest.mark.host_memory
def test_the_guide_counts_collectives_and_names_late_ranks(server: fresh.Server) -> None:
    _, counts, late = (f"import torch_pjrt\n{program}" for program in guide_programs())
    text = (ROOT / "docs/distributed.md").read_text()
    (printed,) = re.findall(r"```text\n(\[3\.0.*?)```", text, re.DOTALL)
    *lines, error = printed.splitlines()
    for result in server.run(*(Job(counts, environment=each) for each in ranks.environments(2))):
        assert result.out.splitlines()[:-1] == lines
        assert result.out.splitlines()[-1].startswith(error.removesuffix("…"))
    settings = {"TORCH_PJRT_COLLECTIVE_WARN_SECONDS": "0.5"}
    first, _ = server.run(*(Job(late, environment=settings | each) for each in ranks.environments(2)))
    assert "ranks [1] of [0, 1] have not come" in first.err
