"""``./dev test --changed`` runs the tests nearest to the changes, as many as fit into two minutes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def changed_tests(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    yield __import__("changed_tests")
    for name in ("changed_tests", "find_tests"):
        sys.modules.pop(name)


def test_the_nearest_come_first(changed_tests) -> None:
    def files(*paths: str) -> list[str]:
        return changed_tests.find([Path(path) for path in paths])[0]

    assert files("tests/jax/test_views.py") == ["tests/jax/test_views.py"]
    assert files("src/disk/disk_cache.cpp")[0] == "tests/disk/test_disk_cache.py"
    assert "tests/engine/executable/test_program_cache.py" in files("src/engine/executable/program.cpp")
    assert "tests/engine/run/test_sync.py" in files("src/engine/run/lazy_engine.cpp")
    assert "tests/ops/test_layouts.py" in files("tests/ops/layouts.py"), "which imports it"
    assert "tests/capture/test_state.py" in files("python/torch_pjrt/capture/step.py")
    assert files("tests/ops/test_edges.py", "src/ops/reduction/reduction.cpp")[0] == "tests/ops/test_edges.py"


def test_of_an_ops_file_its_ops(changed_tests) -> None:
    files, ops = changed_tests.find([Path("src/ops/reduction/scan.cpp")])
    assert {"cumsum", "cummax"} <= set(ops)
    assert "tests/ops/test_opinfo.py" not in files, "where only these ops are chosen"
    assert "tests/ops/reduction/test_sums.py" in files
    ops = changed_tests.find([Path("python/torch_pjrt/decompositions/quantization.py")])[1]
    assert "scaled_grouped_mm" in ops


def test_a_page_has_no_smoke_test(changed_tests) -> None:
    files, ops = changed_tests.find([Path("docs/kernels.md")])
    assert "tests/kernels/test_guide.py" in files
    assert "tests/device/test_views.py" not in files
    assert ops == []


def test_what_differs(changed_tests, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def git(*args: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *args], cwd=tmp_path, check=True)

    monkeypatch.setattr(changed_tests, "ROOT", tmp_path)
    git("init", "--quiet")
    for name in ("same", "changed", "gone"):
        (tmp_path / name).write_text("")
    git("add", ".")
    git("commit", "--quiet", "-m", "all")
    (tmp_path / "changed").write_text("1")
    (tmp_path / "new").write_text("")
    (tmp_path / "gone").unlink()
    assert changed_tests.changed("HEAD") == [Path("changed"), Path("new")]


def test_what_has_not_begun_in_time_is_skipped() -> None:
    command = [sys.executable, "-m", "pytest", "-rs", "--seconds", "0", "tests/python/test_find_tests.py"]
    reported = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert "SKIPPED [2] tests/conftest.py:" in reported
    assert "the time that --seconds gives is over" in reported


def test_ops_without_a_test_of_their_name_pass() -> None:
    of_none = ["-k", "mkldnn_rnn_layer", "tests/python/test_find_tests.py"]
    command = [sys.executable, "-m", "pytest", *of_none]
    assert subprocess.run([*command, "--seconds", "9"], cwd=ROOT).returncode == 0
    assert subprocess.run(command, cwd=ROOT).returncode == pytest.ExitCode.NO_TESTS_COLLECTED
