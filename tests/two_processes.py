"""A script run as both ranks of a world of two."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def told_by_both(script: Path, store: Path) -> Iterator[Any]:
    """The JSON in the last line of ``script store rank``, of each rank. Raises AssertionError where one fails."""
    processes = [
        subprocess.Popen([sys.executable, str(script), str(store), str(rank)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for process in processes:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        yield json.loads(out.splitlines()[-1])
