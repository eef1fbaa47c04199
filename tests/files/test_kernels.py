"""Users' kernels in files: the file names the kernels it needs, and they are found by path."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import torch_pjrt
from tests.files import library
from torch_pjrt.kernels import include_folder

SOURCE = """
#include <xla/ffi/api/ffi.h>
namespace ffi = xla::ffi;
static ffi::Error twice(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = x.typed_data()[i] * 2 + 100;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(twice_f32, twice,
                              ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
"""


@torch_pjrt.composite("files.twice")
def twice(x: torch.Tensor) -> torch.Tensor:
    return x + x


def built(parent: Path, source: str) -> Path:
    folder = parent / "twice"
    folder.mkdir()
    (folder / "twice.cpp").write_text(source)
    library.run(
        "c++", "-std=c++17", "-O0", "-fPIC", "-shared", "-I", include_folder(), folder / "twice.cpp", "-o",
        folder / "libtwice.so",
    )  # fmt: skip
    return folder / "libtwice.so"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = built(tmp_path_factory.mktemp("kernel"), SOURCE)
    torch_pjrt.register_kernel("files.twice", library=path, symbol="twice_f32").remove()  # this copy is what is loaded
    return path


@pytest.fixture
def folder(compiled: Path, tmp_path: Path) -> Path:
    shutil.copy(compiled, tmp_path)
    with torch_pjrt.register_kernel("files.twice", library=tmp_path / "libtwice.so", symbol="twice_f32"):
        torch_pjrt.export(lambda x: twice(x) - 1, torch.ones(3)).save(tmp_path / "it.pjrt")
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    return tmp_path


def test_a_kernel_comes_along(folder: Path) -> None:
    program = torch_pjrt.load(folder / "it.pjrt")
    assert program(torch.ones(3)).tolist() == [101, 101, 101], "as the kernel does it, and no decomposition"
    (kernel,) = program.signature["kernels"]
    assert (kernel["library"], kernel["symbol"]) == ("libtwice.so", "twice_f32")
    assert "files.twice: twice_f32 of libtwice.so, 1 times" in program.describe()


def test_another_copy_is_the_same_kernel(folder: Path, tmp_path: Path) -> None:
    """The process has loaded the kernel from the path of the export."""
    place = tmp_path / "deployed"
    place.mkdir()
    for name in ("it.pjrt", "libtwice.so"):
        shutil.copy(folder / name, place)
    assert torch_pjrt.load(place / "it.pjrt")(torch.ones(3)).tolist() == [101, 101, 101]


def test_another_kernel_of_the_name_is_refused(folder: Path, tmp_path: Path) -> None:
    assert torch_pjrt.load(folder / "it.pjrt")(torch.ones(3)).tolist() == [101, 101, 101]
    other = built(tmp_path, SOURCE.replace("+ 100", "+ 200"))
    (folder / "libtwice.so").unlink()
    shutil.copy(other, folder)
    with pytest.raises(RuntimeError, match=r"'twice_f32' of '.*libtwice.so' is another than the one that this process"):
        torch_pjrt.load(folder / "it.pjrt")(torch.ones(3))


def run_alone(program: Path, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [library.installed() / "bin/pjrt-run", program, "--plugin", library.plugin(), *arguments]
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=300,
        env={"TORCH_PJRT_CACHE": "0", **env},
    )  # fmt: skip


def test_it_is_looked_for_beside_the_file_and_where_it_is_said(folder: Path, tmp_path: Path) -> None:
    out = folder / "y.npy"
    given = ("--input", folder / "x.npy", "--output", out)
    assert run_alone(folder / "it.pjrt", *given).returncode == 0
    assert np.load(out).tolist() == [101, 101, 101]
    other = folder / "other"
    other.mkdir()
    shutil.move(folder / "libtwice.so", other / "libtwice.so")
    missing = run_alone(folder / "it.pjrt", *given)
    assert missing.returncode == 1
    assert "needs the kernel 'twice_f32' of the library 'libtwice.so', which is not there" in missing.stderr
    assert "put it beside the program's file" in missing.stderr
    assert run_alone(folder / "it.pjrt", *given, "--kernels", other).returncode == 0
    (folder / "libtwice.so").write_text("no library")
    assert "can't be loaded" in run_alone(folder / "it.pjrt", *given).stderr
