"""A wheel works in an environment that has never seen this checkout."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import tomllib
import torch

import torch_pjrt

# Building the wheel links the checkout's library again, which other tests would load meanwhile.
pytestmark = pytest.mark.alone
ROOT = Path(__file__).resolve().parents[2]

CORE = "torch_{}_{}".format(*torch.__version__.split(".")[:2])
CMAKE = ("Config", "ConfigVersion", "Targets", "Targets-release")

FILE = """\
import torch, torch_pjrt
torch_pjrt.export(torch.nn.Linear(3, 2), torch.ones(1, 3)).save("model.pjrt")
print(torch_pjrt.include_path(), torch_pjrt.library_path(), sep="\\n")
"""

SERVER = """\
#include <torch_pjrt/program.h>

#include <cstdio>

int main() {
  try {
    torch_pjrt::Program::open("none.pjrt", {.plugin = "xla_cpu_pjrt"});
  } catch (const torch_pjrt::Error& error) {
    std::puts(error.what());
  }
  const auto program = torch_pjrt::Program::open("model.pjrt", {.plugin = "xla_cpu_pjrt"});
  const auto results = program({torch_pjrt::Tensor::of<float>({1, 3}, {1, 2, 3})});
  std::printf("%zu values\\n", results["output"].values<float>().size());
}
"""

CMAKE_LISTS = """\
cmake_minimum_required(VERSION 3.25)
project(server LANGUAGES CXX)
find_package(torch_pjrt 0.1 REQUIRED)
add_executable(server server.cpp)
target_link_libraries(server PRIVATE torch_pjrt::program)
"""

PROGRAM = """\
import importlib.metadata, json, sys
import torch

x = torch.arange(3.0, device="pjrt")
model = torch.compile(torch.nn.Linear(3, 1, bias=False), backend="pjrt")
torch.nn.init.ones_(model.weight)
model(torch.ones(2, 3)).sum().backward()

import torch_pjrt

print(json.dumps({
    "files": [torch_pjrt.__file__, torch_pjrt._C.__file__],
    "path": sys.path,
    "versions": [torch_pjrt.__version__, importlib.metadata.version("torch_pjrt")],
    "sum": (x + x).tolist(),
    "gradient": model.weight.grad.tolist(),
    "compiled": torch_pjrt.metrics()["graphs_compiled"],
    "host_fallbacks": torch_pjrt.metrics()["host_fallbacks"],
}))
"""


def ran(*command: str | Path, **options: object) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=500, **options)  # type: ignore[call-overload]
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return str(result.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    ran(sys.executable, ROOT / "dev", "wheel", folder, env=os.environ | {"TORCH_PJRT_VENV": sys.prefix})
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a new environment with the wheel, and with the packages of this one except its link to the checkout.

    pip finds the wheel's dependencies there in the required versions, or fails: it has no index.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "torch_pjrt" not in entry.name and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    ran(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel, cwd=folder)
    return python


def test_it_works_without_the_checkout(python: Path, tmp_path: Path) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    cache = {"TORCH_PJRT_CACHE": "0"}
    reported = json.loads(ran(python, "-c", PROGRAM, cwd=tmp_path, env=clean | cache).splitlines()[-1])
    environment = python.parents[1]
    assert all(Path(file).is_relative_to(environment) for file in reported["files"]), reported["files"]
    assert not [entry for entry in reported["path"] if Path(entry) == ROOT or Path(entry) == ROOT / "python"]
    assert reported["versions"] == [torch_pjrt.__version__] * 2
    assert reported["sum"] == [0, 2, 4]
    assert reported["gradient"] == [[2, 2, 2]]
    assert reported["compiled"] >= 2
    assert reported["host_fallbacks"] == {}


def test_it_brings_pjrt_run_and_the_library_for_cpp(python: Path, tmp_path: Path) -> None:
    """docs/files.md needs no checkout: by the command line, by a compiler's options, and by CMake."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") and k != "VIRTUAL_ENV"}
    clean["VIRTUAL_ENV"] = str(python.parents[1])
    clean["TORCH_PJRT_CACHE"] = "0"

    def run(*command: str | Path, **more: str) -> str:
        return ran(*command, cwd=tmp_path, env=clean | more)

    headers, libraries = run(python, "-c", FILE).splitlines()[-2:]
    described = run(python.with_name("pjrt-run"), "model.pjrt", "--plugin", "xla_cpu_pjrt", "--describe")
    assert "main" in described
    assert run(python.with_name("pjrt-run"), "model.pjrt", "--plugin", "xla_cpu_pjrt", "--output", "y.npy") is not None
    assert (tmp_path / "y.npy").exists()

    (tmp_path / "server.cpp").write_text(SERVER)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE_LISTS)
    options = ["-std=c++20", f"-I{headers}", "server.cpp", f"-L{libraries}", "-ltorch_pjrt", "-o", "by_options"]
    run(os.environ.get("CXX", "c++"), *options)
    run("cmake", "-S", ".", "-B", "build", f"-Dtorch_pjrt_DIR={libraries}/cmake/torch_pjrt")
    run("cmake", "--build", "build")
    for server in (run("./by_options", LD_LIBRARY_PATH=libraries), run("build/server")):
        assert "none.pjrt" in server.splitlines()[0]
        assert server.splitlines()[-1] == "2 values"


def test_it_has_the_package_and_nothing_else(wheel: Path) -> None:
    package = ROOT / "python" / "torch_pjrt"
    files = (p for p in package.rglob("*") if p.is_file() and p.suffix not in {".so", ".pyc"})
    ours = {str(p.relative_to(package.parent)) for p in files}
    ours.add(f"torch_pjrt/{CORE}/_C{sysconfig.get_config_var('EXT_SUFFIX')}")
    ours |= {f"torch_pjrt/include/torch_pjrt/{header}.h" for header in ("dtype", "program")}
    ours |= {f"torch_pjrt/lib/cmake/torch_pjrt/torch_pjrt{part}.cmake" for part in CMAKE}
    ours |= {"torch_pjrt/lib/libtorch_pjrt.so", f"torch_pjrt-{torch_pjrt.__version__}.data/scripts/pjrt-run"}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name and not name.endswith("/")}
    assert names == ours


def test_its_tag_and_its_torch_are_those_it_was_built_with(wheel: Path) -> None:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    version = re.escape(torch_pjrt.__version__)
    assert re.fullmatch(rf"torch_pjrt-{version}-{python}-{python}-manylinux_2_28_\w+\.whl", wheel.name)
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    needed = re.findall(r"^Requires-Dist: (.*)$", archive.read(metadata).decode(), re.MULTILINE)
    major, minor = torch.__version__.split(".")[:2]
    assert f"torch=={major}.{minor}.*" in needed
    assert [need for need in needed if need.startswith("torch")] == [f"torch=={major}.{minor}.*"]


def test_its_page_says_how_to_install_and_has_no_link_into_the_repository(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    headers, _, text = archive.read(metadata).decode().partition("\n\n")
    assert "Description-Content-Type: text/markdown" in headers
    screen = text[: text.index("## Use")]
    assert "pip install" in screen
    assert "[PJRT C API](https://openxla.org/xla/pjrt)" in screen
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    assert "composites, kernels of your own" in text


def test_its_page_links_to_the_repository_where_that_is_named() -> None:
    spec = importlib.util.spec_from_file_location("package_page", ROOT / "tools/package_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = "[a](docs/a.md#b), [c](https://d.org), [e](#f)"
    assert module.page(text, None) == "a, [c](https://d.org), [e](#f)"
    assert (
        module.page(text, "https://g.org/h")
        == "[a](https://g.org/h/blob/main/docs/a.md#b), [c](https://d.org), [e](#f)"
    )


def test_it_needs_nothing_that_old_systems_lack(wheel: Path) -> None:
    """The systems are RHEL 8 and 9, Ubuntu 20.04 and 22.04. The tool names symbols that others lack."""
    command = [sys.executable, ROOT / "tools/oldest_system.py"]
    assert ran(*command, "manylinux_2_28", wheel) == ""
    refused = subprocess.run([*command, "manylinux_2_17", wheel], capture_output=True, text=True)
    assert refused.returncode == 1
    thread = "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE"
    line = f"needs {thread}, version GLIBCXX_3.4.22, which manylinux_2_17 has not"
    assert line in refused.stdout, refused.stdout + refused.stderr


@pytest.fixture
def joined(wheel: Path, tmp_path: Path) -> Path:
    """Returns the wheel, joined with one that has another version's core: a file that no torch could load."""
    other = tmp_path / "other" / wheel.name
    other.parent.mkdir()
    major, minor = (int(number) for number in torch.__version__.split(".")[:2])
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(other, "w") as copy:
        for name in archive.namelist():
            data = archive.read(name)
            if name.endswith("METADATA"):
                data = data.replace(f"torch=={major}.{minor}.*".encode(), f"torch=={major}.{minor + 2}.*".encode())
            copy.writestr(name.replace(CORE, f"torch_{major}_{minor + 2}"), b"none" if CORE in name else data)
    ran(sys.executable, ROOT / "tools/join_wheels.py", tmp_path / "joined", wheel, other)
    (made,) = (tmp_path / "joined").iterdir()
    return made


def test_a_joint_wheel_has_a_core_for_each_torch(joined: Path, python: Path, tmp_path: Path) -> None:
    major, minor = (int(number) for number in torch.__version__.split(".")[:2])
    archive = zipfile.ZipFile(joined)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    needed = re.findall(r"^Requires-Dist: (torch\W.*)$", archive.read(metadata).decode(), re.MULTILINE)
    assert needed == [f"torch>={major}.{minor},<{major}.{minor + 3},!={major}.{minor + 1}.*"]

    environment = python.parents[1]
    options = ("--quiet", "--disable-pip-version-check", "--no-index", "--force-reinstall", "--no-deps")
    ran(python, "-m", "pip", "install", *options, joined, cwd=environment)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"TORCH_PJRT_CACHE": "0"}
    reported = json.loads(ran(python, "-c", PROGRAM, cwd=tmp_path, env=clean).splitlines()[-1])
    assert reported["sum"] == [0, 2, 4]
    assert Path(reported["files"][1]).parent.name == CORE

    (core,) = environment.glob(f"lib/python*/site-packages/torch_pjrt/{CORE}")
    other = core.rename(core.with_name(f"torch_{major}_{minor + 1}"))
    failed = subprocess.run(
        [python, "-c", "import torch_pjrt"], capture_output=True, text=True, cwd=tmp_path, env=clean
    )
    other.rename(core)  # for the tests after this one
    assert failed.returncode
    assert (
        f"was built for torch {major}.{minor + 1}, {major}.{minor + 2}, and torch {torch.__version__}" in failed.stderr
    )


def test_wheels_that_are_not_of_one_kind_are_not_joined(wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "tools/join_wheels.py", tmp_path, wheel, wheel]
    result = subprocess.run(command, capture_output=True, text=True)
    assert "2 wheels have the cores of 1 versions of torch" in result.stderr


def test_every_extra_is_in_the_guide() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"], "torch_pjrt.__version__ is the one place"
    named = re.findall(r"`torch_pjrt\[(\w+)\]`", (ROOT / "docs/plugins.md").read_text())
    assert sorted(named) == sorted(project["optional-dependencies"])
