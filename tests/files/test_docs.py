"""The commands and the C++ of docs/files.md and docs/cpp.md, unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.files import library

ROOT = Path(__file__).resolve().parents[2]
TEXT = "\n".join((ROOT / "docs" / page).read_text() for page in ("files.md", "cpp.md"))
ENV = {"TORCH_PJRT_CACHE": "0"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder to which the page's Python programs have written their files."""
    folder = tmp_path_factory.mktemp("docs")
    subprocess.run([sys.executable, "-c", "\n".join(blocks("python"))], cwd=folder, check=True, timeout=300)
    np.save(folder / "x.npy", np.ones((1, 4), np.float32))
    return folder


def test_each_command_of_pjrt_run(folder: Path) -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("pjrt-run")]
    assert len(commands) == 3
    site = Path(library.plugin()).parents[2]
    for command in commands:
        program, *rest = command.split()
        result = subprocess.run(
            [library.installed() / "bin" / program, *rest],
            cwd=folder, env={**ENV, "TORCH_PJRT_PLUGIN_PATH": str(site)}, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
    assert (folder / "state.safetensors").exists()
    assert {"frozen.pjrt", "trained.safetensors"} <= {path.name for path in folder.iterdir()}
    assert np.load(folder / "y.npy").shape == (1, 2)


def test_the_program_in_cpp_is_built_as_the_page_says(folder: Path) -> None:
    _, _, builds, builds_onednn = blocks("sh")
    assert "-DTORCH_PJRT_PROGRAM=ON" in builds, "as tests/files/library.py builds it"
    assert "-DTORCH_PJRT_ONEDNN=ON" in builds_onednn, "the same"
    (source,), (cmake,) = blocks("cpp"), blocks("cmake")
    project = folder / "server"
    project.mkdir()
    (project / "server.cpp").write_text(source)
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(server LANGUAGES CXX)\nadd_executable(server server.cpp)\n"
        + cmake
    )
    cmake = library.tool("cmake")
    library.run(
        cmake, "-S", project, "-B", project / "build", "-G", "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={library.tool('ninja')}", f"-DCMAKE_PREFIX_PATH={library.installed()}",
    )  # fmt: skip
    library.run(cmake, "--build", project / "build")
    site = Path(library.plugin()).parents[2]
    result = subprocess.run(
        [project / "build/server"],
        cwd=folder, env={**ENV, "TORCH_PJRT_PLUGIN_PATH": str(site)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.split()) == 2
