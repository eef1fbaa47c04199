"""``./dev gpu`` without a GPU: the conductor runs parts that fail, hang and die, and a rehearsal of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.module_at import module_at

ROOT = Path(__file__).resolve().parents[2]
GPU = ROOT / "bench/gpu"
Run = dict[str, Any]

# A part whose items need no torch.
ITEMS = """
import os, signal, time
from pathlib import Path
from worker import Item, Skip

def fails(setting):
    raise ValueError("it was wrong")

def skips(setting):
    raise Skip("not here")

def dies(setting):
    os.kill(os.getpid(), signal.SIGKILL)

def hangs(setting):
    setting.report({"so far": 3})
    time.sleep(600)

def beside(own, other):
    def work(setting):
        (folder / own).touch()
        until = time.monotonic() + 60
        while not (folder / other).exists():  # is being made ready at the same time
            assert time.monotonic() < until
            time.sleep(0.01)
        setting.report({"prepared in": os.getpid()})
        yield
        assert not (folder / "running").exists()
        (folder / "running").touch()
        time.sleep(0.2)
        (folder / "running").unlink()
        return {"ran in": os.getpid()}
    return work

folder = Path(__file__).parent
PASSES = Item("passes", lambda setting: {"device": setting.device, "tiny": setting.tiny, "process": os.getpid()})
"""


@pytest.fixture
def part(tmp_path: Path) -> Callable[..., Path]:
    def part(name: str, items: str) -> Path:
        path = tmp_path / f"{name}_items.py"
        path.write_text(ITEMS + f"\ndef items(setting):\n    return [{items}]\n")
        return path

    return part


@pytest.fixture
def conduct(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Run]]:
    """Runs a part, and returns the content of its file by item."""
    monkeypatch.syspath_prepend(str(GPU))
    module = load("conduct")
    (tmp_path / "out").mkdir()

    def conduct(items: Path, seconds: float = 60, **options: Any) -> dict[str, Run]:
        conductor = module.Conductor(
            module.Part("one", str(items), 1.0), ["--device", "cpu", "--tiny"],
            deadline=time.monotonic() + seconds, folder=tmp_path / "out", **options,
        )  # fmt: skip
        conductor.run()
        assert not conductor.workers
        reported = json.loads((tmp_path / "out/one.json").read_text())
        return {**{o["name"]: o for o in reported["outcomes"]}, "not reached": reported["not_reached"]}

    return conduct


def load(name: str) -> ModuleType:
    return module_at(GPU / f"{name}.py", f"gpu_{name}")


def status(reported: dict[str, Run]) -> dict[str, str]:
    return {name: outcome["status"] for name, outcome in reported.items() if name != "not reached"}


def test_what_goes_wrong_ends_nothing_else(conduct: Any, part: Any) -> None:
    reported = conduct(
        part("wrong", 'PASSES, Item("fails", fails), Item("skips", skips), Item("hangs", hangs, limit=0.5), '
        'Item("dies", dies), Item("again", PASSES.run), Item("elsewhere", PASSES.run, environment={"A": "1"})')
    )  # fmt: skip
    assert status(reported) == {
        "passes": "passed", "fails": "failed", "skips": "skipped", "hangs": "over its limit", "dies": "died",
        "again": "passed", "elsewhere": "passed",
    }  # fmt: skip
    assert reported["fails"]["error"] == "ValueError: it was wrong"
    assert reported["skips"]["error"] == "not here"
    assert reported["hangs"]["values"] == {"so far": 3}
    assert reported["dies"]["error"] == "ended by SIGKILL"
    processes = {reported[name]["values"]["process"] for name in ("passes", "again", "elsewhere")}
    assert len(processes) == 3, "after a death, and for another environment, there is another process"
    assert reported["again"]["values"]["tiny"]
    assert reported["not reached"] == []


def test_a_part_that_is_cut_short_still_tells(conduct: Any, part: Any) -> None:
    reported = conduct(part("short", 'PASSES, Item("hangs", hangs), Item("never", fails), Item("nor this", fails)'), 6)
    assert status(reported) == {"passes": "passed", "hangs": "cut short"}
    assert reported["hangs"]["values"] == {"so far": 3}
    assert reported["not reached"] == ["never", "nor this"]


def test_a_part_that_cannot_start(conduct: Any, part: Any) -> None:
    reported = conduct(part("broken", "no_such_name"))
    assert status(reported) == {"start": "died"}
    assert reported["start"]["error"] == "ended with status 1"


def test_items_are_made_ready_side_by_side_and_run_alone(conduct: Any, part: Any) -> None:
    items = [f'Item("{a}", beside("{a}", "{b}"), 60, "pair", 2)' for a, b in ("ab", "ba")]
    reported = conduct(part("pair", f'PASSES, {items[0]}, {items[1]}, Item("fails", fails, 60, "pair", 2)'), cores=4)
    assert status(reported) == {"passes": "passed", "a": "passed", "b": "passed", "fails": "failed"}
    for name in "ab":
        assert reported[name]["values"]["prepared in"] == reported[name]["values"]["ran in"]
    assert reported["a"]["values"]["ran in"] != reported["b"]["values"]["ran in"]


MAIN = """
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("gpu_main", {path!r})
main = importlib.util.module_from_spec(spec)
spec.loader.exec_module(main)
parts = [main.Part(Path(file).stem.removesuffix("_items"), file, 0.5) for file in {files!r}]
sys.exit(main.main({arguments!r}, parts))
"""


def started(files: list[Path], *arguments: str) -> subprocess.Popen[str]:
    program = MAIN.format(
        path=str(GPU / "__main__.py"), files=[str(f) for f in files], arguments=["--rehearse", *arguments]
    )
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_a_run_that_is_ended_from_outside(part: Any, tmp_path: Path) -> None:
    files = [part("first", 'PASSES, Item("hangs", hangs)'), part("second", "PASSES")]
    run = started(files, "--out", str(tmp_path))
    file = tmp_path / "first.json"
    until = time.monotonic() + 100
    while not (file.exists() and json.loads(file.read_text())["outcomes"]):
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(0.3)
    run.send_signal(signal.SIGTERM)
    said, _ = run.communicate(timeout=100)
    assert run.returncode == 1, said
    reported = json.loads((tmp_path / "gpu.json").read_text())
    first, second = reported["parts"]["first"], reported["parts"]["second"]
    assert [o["status"] for o in first["outcomes"]] in (["passed", "cut short"], ["passed"]), first
    assert second["not_reached"] == ["all of it"]
    assert "not reached, second: all of it" in said


def test_a_run_after_another(part: Any, tmp_path: Path) -> None:
    files = [part("first", 'PASSES, Item("fails", fails), Item("hangs", hangs, limit=0.5)')]
    assert started(files, "--out", str(tmp_path)).wait(100) == 1
    earlier = tmp_path / "earlier.json"
    (tmp_path / "gpu.json").rename(earlier)
    run = started(files, "--out", str(tmp_path), "--after", str(earlier), "--only", "hangs", "--only", "passes")
    said, _ = run.communicate(timeout=100)
    assert "first: passes" not in said, "it passed before"
    reported = json.loads((tmp_path / "gpu.json").read_text())
    assert [o["name"] for o in reported["parts"]["first"]["outcomes"]] == ["passes", "fails", "hangs"]


def test_what_programs_import_leaves_flags_free() -> None:
    """torch.testing freezes the process's flags, and the next program sets some."""
    imports = "import tests.decompositions.mx, smoke, torch; assert not torch.backends.flags_frozen()"
    paths = os.pathsep.join(map(str, (GPU, ROOT / "bench", ROOT)))
    done = subprocess.run([sys.executable, "-c", imports], capture_output=True, text=True, timeout=100,
                          env=os.environ | {"PYTHONPATH": paths})  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_the_parts_are_rehearsed(tmp_path: Path) -> None:
    """An item or two of each part run on the CPU."""
    words = ["lazy arithmetic", "side streams", "x + 1", "alexnet, inference, TF32", "Llama 1B, prefill", "test_flops"]
    command = [sys.executable, GPU, "--rehearse", "--out", tmp_path, *(f"--only={word}" for word in words)]
    environment = {k: v for k, v in os.environ.items() if k != "TORCH_PJRT_COMPILE"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:] + (tmp_path / "log.txt").read_text()[-3000:]
    reported = json.loads((tmp_path / "gpu.json").read_text())
    by_name = {o["name"]: o for part in reported["parts"].values() for o in part["outcomes"]}
    assert status(by_name) == {
        "lazy arithmetic": "passed", "side streams": "skipped", "lazy arithmetic, autotuning off": "passed",
        "x + 1": "passed", "alexnet, inference, TF32": "passed", "alexnet, inference, TF32, max-autotune": "passed",
        "Llama 1B, prefill of 2,048": "passed", "tests/adapt/test_flops.py": "passed",
    }  # fmt: skip
    assert by_name["tests/adapt/test_flops.py"]["values"]["passed"] > 0
    llama = by_name["Llama 1B, prefill of 2,048"]["values"]
    assert llama["median"].keys() == {"eager", "inductor", "pjrt", "pjrt, lazily"}, llama
    assert (tmp_path / "gpu.png").stat().st_size > 1000
    assert "alexnet, inference, TF32" in done.stdout


# --- what is missing --------------------------------------------------------------------------------------------------


def test_what_the_machine_lacks_is_said_at_once(tmp_path: Path) -> None:
    needs = load("needs")
    if needs.has_driver():
        pytest.skip("the machine has a GPU's driver")
    command = [sys.executable, GPU, "--out", tmp_path, "--wheel", tmp_path / "no.whl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "this machine lacks\n  - NVIDIA's driver: libcuda.so.1 can't be loaded" in done.stderr
    assert "no.whl" in done.stderr
    assert "Nothing is downloaded here" in done.stderr
    assert not (tmp_path / "gpu.json").exists()


def test_a_wheel_must_fit(tmp_path: Path) -> None:
    needs = load("needs")
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    wheel = tmp_path / f"torch_pjrt-0.1.0-{tag}-{tag}-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch_pjrt/torch_2_11/_C.so", "")
        archive.writestr("torch_pjrt/__init__.py", "")
    assert needs.fits(wheel, "2.11.0+cu130") == ""
    assert "has no core for torch 2.13.0" in needs.fits(wheel, "2.13.0")
    assert "is not for this Python" in needs.fits(wheel.with_name("torch_pjrt-0.1.0-cp39-cp39-linux.whl"), "2.11.0")
    needs.unpack(wheel, tmp_path / "site")
    assert (tmp_path / "site/torch_pjrt/torch_2_11/_C.so").exists()


# --- the report ------------------------------------------------------------------------------------------------------


def figure(name: str, **median: float) -> Run:
    values = {"median": median, "memory": {}, "first": {}, "broke": {}}
    return {"name": name, "status": "passed", "seconds": 1.0, "values": values, "error": ""}


def run_of(*figures: Run, not_reached: tuple[str, ...] = ()) -> Run:
    return {"parts": {"figures": {"outcomes": list(figures), "not_reached": list(not_reached)}}}


def test_ratios_are_to_the_faster_compiler() -> None:
    report = load("report")
    at_once = figure("vit, inference, bf16", eager=3.0, inductor=2.0, pjrt=1.0)
    other = {"max-autotune": 3.0, "pjrt": 2.0}  # in other rounds, in which ours took twice as long
    run = run_of(at_once, figure("vit, inference, bf16, max-autotune", **other), figure("x + 1", eager=1.0, pjrt=2.0))
    vit, plus = report.figures(run)
    assert vit.seconds["max-autotune"] == 1.5
    assert vit.ratio == 1.0 / 1.5
    assert vit.reference == ("Inductor, max-autotune", 1.5)
    assert plus.reference == ("eager", 1.0)
    assert plus.target == (1.0, None)
    ((what, mean, count, target),) = report.means([vit, plus])
    assert (mean, count, target) == (pytest.approx(1 / 1.5), 1, 0.8)
    assert "inference, bf16" in what


def test_memory_is_compared() -> None:
    report = load("report")
    step = figure("vit, a step, bf16", inductor=2.0, pjrt=1.0)
    ours = {"torch": 2 << 20, "plugin.peak_bytes_in_use": 1 << 20}
    step["values"]["memory"] = {"inductor": {"torch": 4 << 20}, "pjrt": ours}
    (found,) = report.figures(run_of(step))
    assert found.peaks == (3.0, 4.0)
    assert "| 0.75 |" in report.section(run_of(step))


def test_what_takes_too_long_leaves_time_for_what_is_there() -> None:
    program = """
    import time
    from ways import Timing
    from worker import Setting

    timing = Timing(Setting("cpu", True, lambda values: None, limit=1.0))
    timing.add("eager", lambda: lambda: time.sleep(0.25))
    timing.add("pjrt", lambda: lambda: None)
    values = timing.timed()
    assert list(values["median"]) == ["eager"], values
    assert values["broke"]["pjrt"].startswith("not reached"), values
    """
    paths = os.pathsep.join(map(str, (GPU, ROOT / "bench", ROOT)))
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=100,
                          env=os.environ | {"PYTHONPATH": paths})  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_runs_are_joined() -> None:
    report = load("report")
    first = run_of(figure("a", pjrt=1.0, eager=1.0), figure("b", pjrt=1.0, eager=1.0), not_reached=("c", "d"))
    second = run_of(figure("b", pjrt=2.0, eager=1.0), figure("c", pjrt=1.0, eager=1.0), not_reached=("d", "e"))
    part = report.joined([first, second])["parts"]["figures"]
    assert [o["name"] for o in part["outcomes"]] == ["a", "b", "c"]
    assert part["outcomes"][1]["values"]["median"]["pjrt"] == 2.0
    assert part["not_reached"] == ["d", "e"]


def test_the_guide_has_what_was_kept() -> None:
    """If it fails, run ./dev gpu --docs docs/gpu.json."""
    report = load("report")
    text = (ROOT / "docs/plugins.md").read_text()
    assert report.page(text, report.kept()) == text
    run = report.joined([run_of(figure("x + 1", eager=1.3e-5, pjrt=9.6e-5), not_reached=("a slow one",))])
    section = report.section(run)
    assert "| x + 1 | 0.013 |  |  | 0.096 | 7.38 | 1.0 |  |" in section
    assert "not reached: a slow one" in section
    assert textwrap.dedent(section) == section
