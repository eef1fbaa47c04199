"""The examples of docs/kernels.md run. tests/python/test_code_blocks.py runs its programs."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler"),
    pytest.mark.compiled,
]


def ran(*command: str | Path) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake")
def test_the_example_of_a_library(tmp_path: Path) -> None:
    folder = ROOT / "examples/kernel"
    ran("cmake", "-S", folder, "-B", tmp_path, f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Debug")
    ran("cmake", "--build", tmp_path)
    said = ran(sys.executable, folder / "use.py", tmp_path / "librms_norm.so")
    assert "rms_norm_f32 of librms_norm.so" in said
    assert "fits (use.py:" in said


@pytest.mark.thorough
def test_the_example_of_kernel_sums() -> None:
    said = ran(sys.executable, ROOT / "examples/keops.py", "2000", "--few", "500", "--alone", "--sums", "softmax")
    errors = [float(value) for value in re.findall(r"\d\.\de-\d\d", said)]
    assert len(errors) == 1
    assert max(errors) < 1e-4, said
