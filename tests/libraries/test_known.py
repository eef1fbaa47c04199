"""Libraries that are adapted, and those that aren't: with a library that has the name of a real one."""

from __future__ import annotations

from pathlib import Path

from tests.fresh import Job, Server

UTILS = """\
import torch
{0}
def get_device({1}):
    return torch.device("cpu" if device == "auto" else device)
"""


def library(folder: Path, version: str, *, imports: str = "", parameters: str = 'device="auto"') -> str:
    """Source that can import a stable_baselines3 of that version, in which `imports` stands in the middle, and whose
    get_device has these parameters."""
    package, wheel = folder / "stable_baselines3", folder / f"stable_baselines3-{version}.dist-info"
    (package / "common").mkdir(parents=True)
    wheel.mkdir()
    (wheel / "METADATA").write_text(f"Metadata-Version: 2.1\nName: stable-baselines3\nVersion: {version}\n")
    (package / "__init__.py").write_text("from stable_baselines3.user import get_device as taken\n")
    (package / "common/__init__.py").write_text("")
    (package / "common/utils.py").write_text(UTILS.format(imports, parameters))
    (package / "user.py").write_text("from stable_baselines3.common.utils import get_device\n")
    return f"import sys\nsys.path.insert(0, {str(folder)!r})\n"


ASK = """
import torch_pjrt
import stable_baselines3
from stable_baselines3.common.utils import get_device
print(get_device(), get_device("cpu"), stable_baselines3.taken())
"""
ABSENT = """
import sys, torch_pjrt
sys.path = []
import importlib.util
print(importlib.util.find_spec("stable_baselines3"))
"""
LINE = "torch_pjrt: stable_baselines3 runs on device pjrt (cpu); TORCH_PJRT_AUTOSELECT=0 leaves the choice to it\n"


def test_when(server: Server, tmp_path: Path) -> None:
    def path(name: str, version: str = "2.9.0", imports: str = "") -> str:
        return library(tmp_path / name, version, imports=imports)

    quiet = {"PYTHONWARNINGS": "ignore"}
    after, before, middle, unknown, off, logged = server.run(
        Job(path("after") + ASK, environment=quiet),
        Job(path("before") + "import stable_baselines3" + ASK, environment=quiet),
        Job(path("middle", imports="import torch_pjrt") + "import stable_baselines3" + ASK, environment=quiet),
        Job(path("unknown", "97.1") + ASK),
        Job(path("off") + ASK, environment={"TORCH_PJRT_AUTOSELECT": "0"}),
        Job(path("logged") + "import logging\nlogging.basicConfig(level=logging.ERROR)" + ASK),
    )
    for here in (after, before, middle, unknown):
        assert here.out == "pjrt:0 cpu pjrt:0\n"
        assert here.err == LINE
    assert (off.out, off.err) == ("cpu cpu cpu\n", "")
    assert (logged.out, logged.err) == ("pjrt:0 cpu pjrt:0\n", "")


def test_what_does_not_fit_is_left_alone(server: Server, tmp_path: Path) -> None:
    renamed = library(tmp_path / "renamed", "97.1", parameters='device="auto", index=None')
    moved = library(tmp_path / "moved", "98.2")
    folder = tmp_path / "moved/stable_baselines3"
    (folder / "common/utils.py").rename(folder / "devices.py")
    for file in (folder / "__init__.py", folder / "user.py"):
        file.write_text(file.read_text().replace("common.utils", "devices"))
    of_other_arguments, of_other_modules, absent = server.run(
        Job(renamed + ASK),
        Job(moved + ASK.replace("common.utils", "devices")),
        Job(ABSENT),
    )
    assert of_other_arguments.out == of_other_modules.out == "cpu cpu cpu\n"
    start = "UserWarning: torch_pjrt leaves stable-baselines3 "
    why = (
        "97.1 alone, as stable_baselines3.common.utils isn't what is known here: get_device(device='auto', index=None)"
    )
    assert of_other_arguments.err.count(start + why + " takes other arguments. It may not choose") == 1
    why = "98.2 alone, as stable_baselines3.common.utils isn't what is known here: there is no such module. It may"
    assert of_other_modules.err.count(start + why) == 1
    assert (absent.out, absent.err) == ("None\n", "")


def test_packages_of_a_wheel_are_one_library(server: Server, tmp_path: Path) -> None:
    for package in ("lightning_fabric", "pytorch_lightning"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    source = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport torch_pjrt, lightning_fabric, pytorch_lightning"
    )
    (result,) = server.run(Job(source))
    assert result.err.count("UserWarning: torch_pjrt leaves pytorch-lightning ") == result.err.count("UserWarning") == 1
    assert "alone, as lightning_fabric.accelerators isn't what is known here: there is no such module" in result.err


def test_nothing_is_imported_for_it(server: Server) -> None:
    source = """
import sys, torch_pjrt
print([name for name in sys.modules if name.startswith("torch_pjrt.libraries.")])
"""
    (result,) = server.run(Job(source))
    assert result.out == f"{[f'torch_pjrt.libraries.{name}' for name in ('choice', 'known')]}\n"
