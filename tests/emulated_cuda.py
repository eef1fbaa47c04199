"""A process with an emulated CUDA, to test code for GPUs without one.

PyTorch's part of CUDA is emulated by engine/compiled_call/emulated_cuda.cpp, the plugin's by pjrt/cuda.c: the memory is
the host's, the kernels and the programs are the CPU's, and both log what they are asked about streams."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import torch_pjrt.plugins
from tests import fresh
from tests.plugin_library import plugin_library

ROOT = Path(__file__).parents[1]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

# The CUDA part of PyTorch is loaded before torch, as libtorch_cuda is; torch_pjrt is loaded after torch.
BEFORE = "import ctypes\nctypes.CDLL({!r})\n"
START = """
import os
import torch
torch.cuda._lazy_init = lambda: None
torch.cuda.device_count = lambda: int(os.environ.get("EMULATED_CUDA_DEVICES", "1"))
import torch_pjrt

def log():
    with open(os.environ["EMULATED_CUDA_LOG"], "r+") as file:
        lines = file.read().split("\\n")[:-1]
        file.truncate(0)
    return lines
"""


def environment_in(folder: Path) -> dict[str, str]:
    """Returns the environment of a process with an emulated CUDA; builds the libraries and puts the log in the
    folder."""
    host = torch_pjrt.plugins.find_plugins()["xla_cpu_pjrt"].path
    plugin = plugin_library(ROOT / "tests/pjrt/cuda.c", folder / "plugin_cpu.so", f"-I{Path(host).parent / 'include'}")
    home = Path(torch.__file__).parent
    headers = [f"-I{home / 'include'}", f"-I{home / 'include/torch/csrc/api/include'}"]
    libraries = [f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}", "-ltorch_cpu", "-lc10", "-lstdc++"]
    macros = [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", f"-DOF_TORCH={torch.__version__}"]
    macros.append("-DAT_PER_OPERATOR_HEADERS")  # some of ATen's headers would include those of all ops
    library = folder / "emulated_cuda.so"
    plugin_library(
        ROOT / "tests/engine/compiled_call/emulated_cuda.cpp", library, "-std=c++20", *macros, *headers, *libraries
    )
    (folder / "log").touch()
    return {
        "EMULATED_CUDA": str(library), "EMULATED_CUDA_LOG": str(folder / "log"),
        "TORCH_PJRT_PLUGIN": str(plugin), "TORCH_PJRT_TEST_PLUGIN": host, "TORCH_PJRT_CACHE": "0",
        "PYTHONPATH": str(ROOT), "TORCH_PJRT_STRICT": "1",
        "TORCH_PJRT_LIBRARY_KERNELS": "0",  # there is no cuDNN
    }  # fmt: skip


@pytest.fixture(scope="session")
def cuda_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment_in(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="session")
def beside_cuda(cuda_environment: dict[str, str]) -> Iterator[fresh.Server]:
    server = fresh.Server(BEFORE.format(cuda_environment["EMULATED_CUDA"]))
    yield server
    server.close()


@pytest.fixture
def run_beside_cuda(beside_cuda: fresh.Server, cuda_environment: dict[str, str], tmp_path: Path) -> Run:
    if torch.version.cuda or torch.version.hip:
        pytest.skip("PyTorch has CUDA of its own, and beside it none can be emulated")

    def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = cuda_environment | variables
        job = fresh.Job(START + textwrap.dedent(program), (), environment, str(tmp_path / "program.py"))
        (tmp_path / "program.py").write_text(job.source)
        Path(cuda_environment["EMULATED_CUDA_LOG"]).write_text("")  # clears what the last process logged at its end
        [result] = beside_cuda.ends(job)
        assert result.returncode == 0, result.stderr
        return result

    return run


INTERPRETED = """
from torch_pjrt import _C

def counts():
    m = torch_pjrt.metrics()
    assert m["host_fallbacks"] == {}
    return m["graphs_interpreted"], m["graphs_compiled"] + m["graphs_loaded_from_disk"]

def on_stream(number):
    return torch.Stream(stream_id=number, device_index=0, device_type=1)

def made_by_kernels(values):
    x = torch.tensor(values).to("pjrt") + 0
    torch_pjrt.sync()
    log()
    return x
"""


@pytest.fixture
def run_interpreted_on_cuda(run_beside_cuda: Run) -> Run:
    """Runs programs on "pjrt" whose calls are CUDA's kernels (Note [Interpreter tier on CUDA])."""

    def run(program: str, policy: str = "auto", **variables: str) -> subprocess.CompletedProcess[str]:
        variables = {"TORCH_PJRT_STRICT": "0", "TORCH_PJRT_COMPILE": policy} | variables
        return run_beside_cuda("\n".join([INTERPRETED, textwrap.dedent(program)]), **variables)

    return run
