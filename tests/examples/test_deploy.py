"""examples/deploy: a training step in a file is trained in C++, and Python loads the weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.files import library

ROOT = Path(__file__).resolve().parents[2]


def test_digits_train_in_cpp(tmp_path: Path) -> None:
    script = ROOT / "examples/deploy/export_digits.py"
    library.run(sys.executable, script, tmp_path)
    library.run(
        library.tool("cmake"), "-S", script.parent, "-B", tmp_path / "build", "-G", "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={library.tool('ninja')}", f"-DCMAKE_PREFIX_PATH={library.installed()}",
    )  # fmt: skip
    library.run(library.tool("cmake"), "--build", tmp_path / "build")
    trained = subprocess.run(
        [tmp_path / "build/train", tmp_path, library.plugin()],
        capture_output=True, text=True, timeout=300, env={"TORCH_PJRT_CACHE": "0"},
    )  # fmt: skip
    assert trained.returncode == 0, trained.stdout + trained.stderr  # the program checks for 97 %
    assert "accuracy in C++" in trained.stdout
    assert "accuracy in Python" in library.run(sys.executable, script, tmp_path, "--restore")
