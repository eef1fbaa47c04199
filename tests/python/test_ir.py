"""./dev ir: a script's programs, as it compiles them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_pjrt
from torch_pjrt import _C

SCRIPT = """\
import sys
import torch

x = torch.ones(2, 3).to("pjrt")
for step in range(3):
    print(x.exp().sum(dim=1).tolist() == [x.exp().sum(dim=1)[0].item()] * 2, sys.argv[1:], __name__)
"""


def ir(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch_pjrt.ir", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_every_program_of_a_script_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    result = ir(tmp_path / "script.py", "--fast")
    assert result.returncode == 0, result.stderr
    out = result.stdout
    assert out.count("True ['--fast'] __main__") == 3
    numbers = [line for line in out.splitlines() if line.startswith("// program")]
    count = len(numbers) // 2
    assert numbers == [f"// program {i + 1}: {what}" for i in range(count) for what in ("graph", "StableHLO")]
    assert 1 <= count <= 2
    assert (
        f"// program 1: graph\n%0 = f32[2, 3] leaf\n%1 = f32[2, 3] aten::exp(self=%0)  # {tmp_path}/script.py:6\n"
    ) in out
    assert '// program 1: StableHLO\nmodule @"graph" {\n' in out


def test_a_line_is_the_users_wherever_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "torch" / "torch_pjrt"
    folder.mkdir(parents=True)
    (folder / "script.py").write_text(SCRIPT)
    assert f"aten::exp(self=%0)  # {folder}/script.py:6\n" in ir(folder / "script.py").stdout


def test_a_script_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("VALUE = 7\n")
    (tmp_path / "script.py").write_text("import neighbour\nprint(neighbour.VALUE)\n")
    assert ir(tmp_path / "script.py").stdout == "7\n"


def test_what_is_wrong_with_the_command_is_said(tmp_path: Path) -> None:
    none = ir()
    assert (none.returncode, none.stderr) == (1, "usage: python -m torch_pjrt.ir script.py [its arguments]\n")
    missing = ir(tmp_path / "missing.py")
    assert missing.returncode == 1
    assert missing.stderr == f"torch_pjrt.ir: there is no script at '{tmp_path / 'missing.py'}'\n"


def test_a_scripts_error_is_the_scripts_own(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nsys.exit(3)\n")
    assert ir(tmp_path / "script.py").returncode == 3


@pytest.mark.compiled
def test_the_listener_is_told_before_compiling_and_until_it_is_ended() -> None:
    seen: list[tuple[str, str]] = []
    x = torch.ones(3, 51).to("pjrt")
    torch_pjrt.sync()
    _C.set_program_listener(lambda graph, stablehlo: seen.append((graph, stablehlo)))
    try:
        x.exp().cpu()
        x.exp().cpu()  # known: not compiled
    finally:
        _C.set_program_listener(None)
    x.sin().cpu()
    assert len(seen) == 1
    graph, stablehlo = seen[0]
    assert "aten::exp" in graph
    assert "stablehlo.exponential" in stablehlo


@pytest.mark.compiled
def test_what_a_listener_raises_ends_the_sync_and_changes_nothing() -> None:
    x = torch.ones(3, 52).to("pjrt")

    def refuse(graph: str, stablehlo: str) -> None:
        raise ValueError("not this one")

    y = x.exp()
    _C.set_program_listener(refuse)
    try:
        with pytest.raises(ValueError, match=r"^not this one$"):
            y.cpu()
    finally:
        _C.set_program_listener(None)
    assert torch.allclose(y.cpu(), torch.ones(3, 52).exp())
