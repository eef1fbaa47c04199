"""The programs of docs/distributed.md run as they are."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from tests import fresh, ranks
from tests.fresh import Job

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.host_memory
@pytest.mark.thorough
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
    _, counts, late, _ = (f"import torch_pjrt\n{program}" for program in guide_programs())
    text = (ROOT / "docs/distributed.md").read_text()
    (printed,) = re.findall(r"```text\n(\[3\.0.*?)```", text, re.DOTALL)
    *lines, error = printed.splitlines()
    for result in server.run(*(Job(counts, environment=each) for each in ranks.environments(2))):
        assert result.out.splitlines()[:-1] == lines
        assert result.out.splitlines()[-1].startswith(error.removesuffix("…"))
    settings = {"TORCH_PJRT_COLLECTIVE_WARN_SECONDS": "0.5"}
    first, _ = server.run(*(Job(late, environment=settings | each) for each in ranks.environments(2)))
    assert "ranks [1] of [0, 1] have not come" in first.err


@pytest.mark.host_memory
def test_training_goes_on_after_a_rank_has_died(server: fresh.Server, tmp_path: Path) -> None:
    """The agent is that of torchrun. The processes that it starts are forked, and so import nothing."""
    text = (ROOT / "docs/distributed.md").read_text()
    (printed,) = re.findall(r"```text\n(0 \d.*?)```", text, re.DOTALL)
    launch = (
        "import os, sys\n"
        "from torch.distributed.launcher.api import LaunchConfig, elastic_launch\n"
        "os.chdir(sys.argv[2])\n"
        "def main():\n"
        "    import torch_pjrt\n"
        "    exec(sys.argv[1], {'__name__': '__main__'})\n"
        "config = LaunchConfig(1, 1, 2, run_id='0', rdzv_backend='c10d', rdzv_endpoint='localhost:0', max_restarts=1,\n"
        "    monitor_interval=0.1, start_method='fork')\n"
        "elastic_launch(config, main)()\n"
    )
    (result,) = server.run(Job(launch, (guide_programs()[3], tmp_path), {"OMP_NUM_THREADS": "1"}))
    assert result.out == printed
    assert "failed (exitcode: " in result.err
    model = torch.nn.Linear(8, 8)
    torch.manual_seed(0)
    model.reset_parameters()
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for step in range(5):
        torch.manual_seed(step)
        losses.append(model(torch.randn(4, 8)).square().mean())
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    assert printed == "".join(f"{step} {loss.item():.4f}\n" for step, loss in enumerate(losses))
