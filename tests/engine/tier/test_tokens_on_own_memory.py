"""Under `auto`, tokens make no programs on a device with its own memory (`first`: tests/device/test_own_memory.py)."""

from __future__ import annotations

from pathlib import Path

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


def test_tokens_make_few_programs(server: fresh.Server, tmp_path: Path) -> None:
    environment = own_memory(tmp_path) | {"TORCH_PJRT_COMPILE": "auto", "PYTHONPATH": str(Path(__file__).parents[3])}
    done = server.end(PROGRAM.format(kinds=KINDS), str(tmp_path / "program.py"), **environment)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
