"""Tokens make no programs on a device with a memory of its own, where a call that is run alone is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fresh
from tests.plugin_library import own_memory

KINDS = ("GPT-2, static", "Mixtral", "T5, beams")
PROGRAM = """
import torch_pjrt
from tests.models.generating import programs_of
for kind in {kinds}:
    made = programs_of(kind)
    print(kind, made)
    assert made <= 5, (kind, made, torch_pjrt.metrics())
"""


@pytest.mark.parametrize("policy", ["auto", "first"])
def test_tokens_make_few_programs(server: fresh.Server, tmp_path: Path, policy: str) -> None:
    environment = own_memory(tmp_path) | {"TORCH_PJRT_COMPILE": policy, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = server.end(PROGRAM.format(kinds=KINDS), str(tmp_path / "program.py"), **environment)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
