"""When a library is adapted, and when it is left alone: with a library that has the name and version of a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fresh import Job, Server
from torch_pjrt.libraries.known import KNOWN

UTILS = """\
import torch
{0}
def get_device(device="auto"):
    return torch.device("cpu" if device == "auto" else device)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def library(folder: Path, version: str, *, imports: str = "") -> str:
    """Source that can import a stable_baselines3 of that version, in which `imports` stands in the middle."""
    package, wheel = folder / "stable_baselines3", folder / f"stable_baselines3-{version}.dist-info"
    (package / "common").mkdir(parents=True)
    wheel.mkdir()
    (wheel / "METADATA").write_text(f"Metadata-Version: 2.1\nName: stable-baselines3\nVersion: {version}\n")
    (package / "__init__.py").write_text("from stable_baselines3.user import get_device as taken\n")
    (package / "common/__init__.py").write_text("")
    (package / "common/utils.py").write_text(UTILS.format(imports))
    (package / "user.py").write_text("from stable_baselines3.common.utils import get_device\n")
    return f"import sys\nsys.path.insert(0, {str(folder)!r})\n"


NEWEST = next(each.last for each in KNOWN if each.package == "stable_baselines3") + ".0"
ASK = """
import torch_pjrt
import stable_baselines3
from stable_baselines3.common.utils import get_device
print(get_device(), get_device("cpu"), stable_baselines3.taken())
"""
LINE = "stable_baselines3 runs on device pjrt (cpu); TORCH_PJRT_LIBRARIES=0 leaves the choice to it\n"


def test_when(server: Server, tmp_path: Path) -> None:
    def path(name: str, version: str = NEWEST, imports: str = "") -> str:
        return library(tmp_path / name, version, imports=imports)

    quiet = {"PYTHONWARNINGS": "ignore"}
    after, before, middle, off, unknown, logged = server.run(
        Job(path("after") + ASK, environment=quiet),
        Job(path("before") + "import stable_baselines3" + ASK, environment=quiet),
        Job(path("middle", imports="import torch_pjrt") + "import stable_baselines3" + ASK, environment=quiet),
        Job(path("off") + ASK, environment={"TORCH_PJRT_LIBRARIES": "0"}),
        Job(path("unknown", "97.1") + ASK),
        Job(path("logged") + "import logging\nlogging.basicConfig(level=logging.ERROR)" + ASK),
    )
    for here in (after, before, middle):
        assert here.out == "pjrt:0 cpu pjrt:0\n"
        assert here.err == LINE
    assert (off.out, off.err) == ("cpu cpu cpu\n", "")
    assert unknown.out == "cpu cpu cpu\n"
    assert unknown.err.count("torch_pjrt doesn't know stable_baselines3 97.1") == 1
    assert (logged.out, logged.err) == ("pjrt:0 cpu pjrt:0\n", "")


def test_nothing_is_imported_for_it(server: Server) -> None:
    source = """
import sys, torch_pjrt
print([name for name in sys.modules if name.startswith("torch_pjrt.libraries.")])
"""
    (result,) = server.run(Job(source))
    assert result.out == f"{[f'torch_pjrt.libraries.{name}' for name in ('choice', 'known')]}\n"
