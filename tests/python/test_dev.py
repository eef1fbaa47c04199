"""``./dev test``: tests run on after a failure. ``./dev wheel``: a wheel that old systems can't load is refused."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DEV = Path(__file__).resolve().parents[2] / "dev"


@pytest.fixture
def dev(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("dev", str(DEV))
    spec = importlib.util.spec_from_loader("dev", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("failing", [set(), {"lint", "tests"}, {"build"}, {"alone"}])
def test_every_part_runs(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: set[str]
) -> None:
    ran = []

    def part(name: str) -> None:
        ran.append(name)
        if name in failing:
            dev.fail(f"{name}: no")

    def sh(*command: Any, **_: str) -> None:
        part("alone" if "alone" in command else "tests")

    monkeypatch.setattr(dev, "cmd_lint", lambda: part("lint"))
    monkeypatch.setattr(dev, "build", lambda tests: part("build"))
    monkeypatch.setattr(dev, "run_cpp_tests", lambda _: part("C++"))
    monkeypatch.setattr(dev, "cmd_asan", lambda: part("asan"))
    monkeypatch.setattr(dev, "sh", sh)
    if not failing:
        dev.cmd_test()
        assert "everything passed" in capsys.readouterr().err
    else:
        with pytest.raises(SystemExit) as end:
            dev.cmd_test()
        names = {"lint": "lint", "tests": "Python tests", "build": "build", "alone": "Python tests, alone"}
        assert "; ".join(names[name] for name in names if name in failing) + "." in str(end.value.code)
        said = capsys.readouterr().err
        assert all(f"{name}: no" in said for name in failing)
    assert ran == ["lint", "build", "C++", "asan", "tests", "alone"]


def test_a_wheel_for_newer_systems_alone_is_refused(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[str] = []

    def sh(*command: Any, **_: str) -> None:
        ran.append(
            next(
                name
                for name in ("pip", "auditwheel", str(dev.ROOT / "tools/oldest_system.py"))
                if name in map(str, command)
            )
        )
        if ran[-1] == "pip":
            Path(command[command.index("--wheel-dir") + 1], "one.whl").touch()
        elif ran[-1] != "auditwheel":
            assert command[-2:] == ("manylinux_2_28", command[-1])
            assert command[-1].name == "one.whl"
            raise SystemExit(1)

    monkeypatch.setattr(dev, "build", lambda: None)
    monkeypatch.setattr(dev, "BUILD", tmp_path)
    monkeypatch.setattr(dev, "sh", sh)
    with pytest.raises(SystemExit):
        dev.cmd_wheel(str(tmp_path / "dist"))
    assert [Path(name).name for name in ran] == ["pip", "oldest_system.py"]
