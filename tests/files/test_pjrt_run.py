"""pjrt-run and the C++ library, as users have them: without Python and torch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import torch_pjrt
from tests.files import library
from tests.plugin_library import plugin_library


def pjrt_run(*arguments: str | Path, fails: bool = False) -> str:
    command = [library.installed() / "bin/pjrt-run", *arguments]
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=300, env={"TORCH_PJRT_CACHE": "0"}
    )
    assert (result.returncode != 0) is fails, result.stdout + result.stderr
    return result.stderr if fails else result.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a folder with a file, an input, and the model's result."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).eval()
    x = torch.randn(3, 4)
    torch_pjrt.export(model, x).save(tmp_path / "model.pjrt")
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "expected.npy", model(x).detach().numpy())
    return tmp_path


def test_runs_a_file(folder: Path) -> None:
    model, out = folder / "model.pjrt", folder / "y.npy"
    reported = pjrt_run(
        model, "--plugin", library.plugin(), "--input", folder / "x.npy", "--output", out, "--repeat", "20"
    )
    np.testing.assert_allclose(np.load(out), np.load(folder / "expected.npy"), rtol=1e-5, atol=1e-6)
    assert re.match(r"20 calls: median [\d.]+ us, least [\d.]+, 90% below [\d.]+, most [\d.]+\n", reported)
    pjrt_run(model, "--plugin", library.plugin(), "--input", f"input={folder / 'x.npy'}", "--output", f"output={out}")
    np.testing.assert_allclose(np.load(out), np.load(folder / "expected.npy"), rtol=1e-5, atol=1e-6)


def test_tells_how_it_is_called() -> None:
    assert pjrt_run("--help") == pjrt_run("-h")
    assert pjrt_run("--help").startswith("pjrt-run PROGRAM [options]")


def test_describes_a_file(folder: Path) -> None:
    reported = pjrt_run(folder / "model.pjrt", "--plugin", library.plugin(), "--describe")
    assert "entry main" in reported
    assert "takes  input   float32[3, 4]" in reported
    assert "gives  output  float32[3, 2]" in reported
    assert "2  stablehlo.dot_general" in reported


def test_finds_a_plugin_by_name(folder: Path) -> None:
    site = Path(library.plugin()).parents[2]
    command = [str(library.installed() / "bin/pjrt-run"), str(folder / "model.pjrt"), "--plugin", "xla_cpu_pjrt"]
    env = {"TORCH_PJRT_PLUGIN_PATH": f"/no/such:{site}", "TORCH_PJRT_CACHE": "0"}
    assert subprocess.run(command, env=env, capture_output=True, timeout=300).returncode == 0


def test_keeps_state(tmp_path: Path) -> None:
    norm = nn.BatchNorm1d(2)
    torch_pjrt.export(norm, torch.randn(4, 2)).save(tmp_path / "norm.pjrt")
    state = tmp_path / "state.safetensors"
    pjrt_run(tmp_path / "norm.pjrt", "--plugin", library.plugin(), "--repeat", "4", "--save-state", state)
    program = torch_pjrt.load(tmp_path / "norm.pjrt")
    program.load_state(state)
    assert program.state()["num_batches_tracked"].item() == 5
    other = tmp_path / "other.safetensors"
    pjrt_run(tmp_path / "norm.pjrt", "--plugin", library.plugin(), "--load-state", state, "--save-state", other)
    program.load_state(other)
    assert program.state()["num_batches_tracked"].item() == 6


def test_says_what_is_wrong(folder: Path) -> None:
    model, plugin = folder / "model.pjrt", library.plugin()
    np.save(folder / "wide.npy", np.zeros((3, 5), np.float32))
    np.save(folder / "big_endian.npy", np.zeros((3, 4), ">f4"))
    for arguments, message in (
        ([model], "no plugin was named"),
        ([model, "--plugin", "none_such"], "there is no plugin 'none_such'"),
        ([folder / "none.pjrt", "--plugin", plugin], "can't be opened: No such file"),
        ([model, "--plugin", plugin, "--input", folder / "wide.npy"], "argument 'input' is float32[3, 5], expected"),
        ([model, "--plugin", plugin, "--input", folder / "big_endian.npy"], "or is big-endian"),
        ([model, "--plugin", plugin, "--input", "x=a.npy"], "there is no 'x'; there are 'input'"),
        ([model, "--plugin", plugin, "--output", folder / "no/y.npy"], "can't be written"),
        ([model, "--plugin", plugin, "--repeat", "many"], "--repeat takes a number"),
        ([model, "--unknown"], "unknown option '--unknown'"),
    ):
        said = pjrt_run(*arguments, fails=True)
        assert message in said


def test_the_library_is_small_and_alone() -> None:
    shared = (library.installed() / "lib/libtorch_pjrt.so").resolve()
    assert shared.stat().st_size < 3_000_000
    needed = library.run("readelf", "-d", shared)
    assert "torch_cpu" not in needed
    assert "libpython" not in needed


def test_a_device_with_its_own_memory(folder: Path, tmp_path: Path) -> None:
    include = Path(library.plugin()).parent / "include"
    plugin = plugin_library(
        library.ROOT / "tests/pjrt/own_memory.c", tmp_path / "own_memory_cpu.so", f"-I{include}", "-ldl"
    )
    norm = nn.BatchNorm1d(4)
    exported = torch_pjrt.export(norm, torch.randn(3, 4))
    exported.save(tmp_path / "norm.pjrt")
    command = [library.installed() / "bin/pjrt-run", tmp_path / "norm.pjrt", "--plugin", plugin, "--input"]
    command += [folder / "x.npy", "--output", tmp_path / "y.npy", "--save-state", tmp_path / "s.safetensors"]
    env = {"TORCH_PJRT_CACHE": "0", "TORCH_PJRT_TEST_PLUGIN": library.plugin()}
    subprocess.run([str(part) for part in command], env=env, check=True, timeout=300)
    expected = norm(torch.as_tensor(np.load(folder / "x.npy")))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    before = norm.running_mean.clone()
    exported.restore(tmp_path / "s.safetensors")
    torch.testing.assert_close(norm.running_mean, before)
