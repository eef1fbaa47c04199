"""examples/llama_parallel.py, as a user starts it: its losses are the CPU's, and a step is one program of the world."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.host_memory
def test_losses_are_the_cpus_and_a_step_is_one_program() -> None:
    command = [sys.executable, ROOT / "examples/llama_parallel.py", "--steps", "6"]
    environment = {k: v for k, v in os.environ.items() if k not in ("TORCH_PJRT_CACHE", "TORCH_PJRT_CPU_DEVICES")}
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr  # the script itself compares the losses
    assert len(re.findall(r"^ +\d+ +\d\.\d{6} +\d\.\d{6}$", result.stdout, re.MULTILINE)) == 6
    assert re.search(r"7 executions of [23] programs, 0 ops on the host", result.stdout), result.stdout
    assert re.search(r"^total .* 26,944$", result.stdout, re.MULTILINE)
