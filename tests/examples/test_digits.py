"""The script of ./dev run, as a user starts it: it learns, draws its curve, and never leaves the device."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_digits_trains_on_the_device(tmp_path: Path) -> None:
    curve = tmp_path / "loss.png"
    command = [sys.executable, ROOT / "examples/digits.py", "--plot", curve]
    result = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stdout + result.stderr  # the script itself checks for 97 %
    assert curve.read_bytes().startswith(b"\x89PNG")
    assert re.search(r"host fallbacks\s*│\s*0\b", result.stdout), result.stdout
    assert "264/264" in result.stderr  # the progress bar
