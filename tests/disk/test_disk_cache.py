"""The disk cache: processes load what others compiled; problems with it are reported and never stop a program."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import fresh

# Runs one small program for each argument (f32[n] -> exp) and reports which files it made.
pytestmark = pytest.mark.compiled
PROGRAMS = """\
import json, os, sys
import torch, torch_pjrt

torch_pjrt._C.set_interprets_growing(False)  # the sizes are many, and each is to be compiled
folder = os.environ.get("TORCH_PJRT_CACHE_DIR", "")
listed = lambda: set(os.listdir(folder)) if os.path.isdir(folder) else set()
files = {}
for argument in sys.argv[1:]:
    n, _, device = argument.partition("@")
    before = listed()
    x = torch.full((int(n),), 0.5)
    assert torch.allclose(x.to("pjrt:" + (device or "0")).exp().cpu(), x.exp())
    files[argument] = sorted(listed() - before)
metrics = torch_pjrt.metrics()
compiled, loaded = metrics["graphs_compiled"], metrics["graphs_loaded_from_disk"]
print(json.dumps({"compiled": compiled, "loaded": loaded, "files": files}))
"""


@dataclass
class Outcome:
    compiled: int
    loaded: int
    files: dict[str, Any]
    warnings: list[str]


def outcome(result: fresh.Result) -> Outcome:
    warnings = [line for line in result.err.splitlines() if "torch_pjrt: " in line]
    return Outcome(**json.loads(result.out.splitlines()[-1]), warnings=warnings)


class Run:
    """Runs PROGRAMS, or another source, in a fresh process that stores its programs in `folder`."""

    def __init__(self, server: fresh.Server) -> None:
        self.server = server

    def __call__(self, folder: Path | str, *arguments: object, source: str = PROGRAMS, **environment: str) -> Outcome:
        return self.at_once(1, folder, *arguments, source=source, **environment)[0]

    def at_once(
        self, count: int, folder: Path | str, *arguments: object, source: str = PROGRAMS, **environment: str
    ) -> list[Outcome]:
        job = fresh.Job(source, arguments, {"TORCH_PJRT_CACHE_DIR": str(folder)} | environment)
        return [outcome(result) for result in self.server.run(*[job] * count)]


@pytest.fixture(scope="module")
def run(server: fresh.Server) -> Run:
    return Run(server)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "programs"


def test_another_process_loads_what_one_compiled(run: Run, folder: Path) -> None:
    first = run(folder, 11, 12)
    assert (first.compiled, first.loaded, first.warnings) == (2, 0, [])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    entries = sorted(folder.iterdir())
    assert [e.name for e in entries] == sorted(name for made in first.files.values() for name in made)
    assert {stat.S_IMODE(e.stat().st_mode) for e in entries} == {0o600}
    second = run(folder, 12, 11, 13)
    assert (second.compiled, second.loaded, second.warnings) == (1, 2, [])
    # The user's lines don't matter; programs, options and the plugin's flags do.
    elsewhere = run(folder, 11, 12, source="\n\n" + PROGRAMS)
    assert (elsewhere.compiled, elsewhere.loaded) == (0, 2)


@pytest.mark.host_memory
def test_the_key_holds_options_devices_and_flags(run: Run, folder: Path) -> None:
    assert run(folder, 11).compiled == 1
    # A client of two devices is another client, and a program is compiled for its device.
    assert run(folder, 11, "11@1", TORCH_PJRT_CPU_DEVICES="2").compiled == 2
    assert run(folder, 11, "11@1", TORCH_PJRT_CPU_DEVICES="2").loaded == 2
    assert run(folder, 11, XLA_FLAGS="--xla_cpu_enable_fast_math=true").compiled == 1
    # A dump of compilations is written although the program is in the cache.
    assert run(folder, 11, XLA_FLAGS="--xla_cpu_enable_fast_math=true --xla_dump_to=/dev/null").compiled == 1
    assert run(folder, 11).loaded == 1


TRAINING = """\
import json, torch, torch_pjrt
torch.manual_seed(3)
layers = torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(7, 3)
model = torch.nn.Sequential(*layers).to("pjrt")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(4):
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 / (step + 1)
    optimizer.zero_grad()
    loss = model(torch.randn(4, 5).to("pjrt")).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
metrics = torch_pjrt.metrics()
compiled, loaded = metrics["graphs_compiled"], metrics["graphs_loaded_from_disk"]
print(json.dumps({"compiled": compiled, "loaded": loaded, "files": {"losses": [loss.hex() for loss in losses]}}))
"""


def test_training_from_disk_is_the_same_to_the_bit(run: Run, folder: Path) -> None:
    first = run(folder, source=TRAINING)
    assert first.compiled > 0
    second = run(folder, source=TRAINING)
    assert (second.compiled, second.loaded) == (0, first.compiled + first.loaded)
    assert second.files == first.files


EXPLAINED = """\
import json, torch, torch_pjrt
x = torch.ones(3).to("pjrt")
with torch_pjrt.explain() as report:
    x.exp().cpu()
    x.exp().cpu()
runs = [[run.source, run.compile_seconds > 0] for run in report.graphs]
print(json.dumps({"compiled": 0, "loaded": 0, "files": {"runs": runs}}))
"""


def test_explain_reports_what_came_from_disk(run: Run, folder: Path) -> None:
    assert run(folder, source=EXPLAINED).files == {"runs": [["compiled", True], ["memory", False]]}
    assert run(folder, source=EXPLAINED).files == {"runs": [["disk", True], ["memory", False]]}


IN_PLACE = """\
import json, resource, torch, torch_pjrt
x = torch.zeros(48 << 20).to("pjrt")  # 192 MiB
torch.pjrt.synchronize()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(3):
    x.add_(1.0)
    torch.pjrt.synchronize()
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert x[-1].item() == 3.0
metrics = torch_pjrt.metrics()
compiled, loaded = metrics["graphs_compiled"], metrics["graphs_loaded_from_disk"]
print(json.dumps({"compiled": compiled, "loaded": loaded, "files": {"grown": [grown // 1024]}}))
"""


def test_a_program_from_disk_still_updates_in_place(run: Run, folder: Path) -> None:
    run(folder, source=IN_PLACE)
    second = run(folder, source=IN_PLACE)
    assert second.loaded > 0
    assert second.files["grown"][0] < 100  # MiB; a second buffer would be 192


# --- entries that are no good -----------------------------------------------------------------------------------------


def checksum(content: bytes) -> bytes:
    return hashlib.sha1(content).hexdigest().encode()


def another_users(entry: Path) -> None:
    os.chown(entry, 12345, -1)


def link(entry: Path) -> None:
    entry.rename(entry.with_suffix(".moved"))
    entry.symlink_to(entry.with_suffix(".moved"))


def pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry, 0o600)


def refused_by_the_plugin(entry: Path) -> None:
    """A complete entry with a valid checksum that is not a program."""
    magic, rest = entry.read_bytes().split(b"\n", 1)
    key, content = rest[:40], b"no program" * 100
    entry.write_bytes(magic + b"\n" + key + b" " + checksum(content) + b"\n" + content)


def flip_a_bit(entry: Path) -> None:
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(content)


BAD_ENTRIES: list[tuple[Callable[[Path], object], str]] = [
    (lambda entry: entry.write_bytes(b""), "is truncated, or no program of torch_pjrt"),
    (lambda entry: entry.write_bytes(entry.read_bytes()[:2000]), "is truncated or damaged (its checksum is wrong)"),
    (flip_a_bit, "is truncated or damaged (its checksum is wrong)"),
    (lambda entry: entry.write_bytes(b"something else " * 1000), "is truncated, or no program of torch_pjrt"),
    (lambda entry: shutil.copy(min(entry.parent.glob("*.spare")), entry), "is that of another program"),
    (refused_by_the_plugin, "is refused by the plugin: PJRT_Executable_DeserializeAndLoad"),
    (link, "is a symbolic link"),
    (pipe, "is no plain file"),
    (lambda entry: entry.chmod(0o620), "may be written by others (mode 0620)"),
]
if os.geteuid() == 0:  # only root can change a file's owner
    BAD_ENTRIES.append((another_users, "belongs to another user (uid 12345)"))


def test_a_bad_entry_is_reported_compiled_again_and_replaced(run: Run, folder: Path) -> None:
    sizes = range(20, 20 + len(BAD_ENTRIES))
    first = run(folder, 19, *sizes)
    [spare] = first.files["19"]
    (folder / spare).rename((folder / spare).with_suffix(".spare"))
    paths = [folder / first.files[str(n)][0] for n in sizes]
    for path, (spoil, _) in zip(paths, BAD_ENTRIES, strict=True):
        spoil(path)
    second = run(folder, *sizes)
    assert (second.compiled, second.loaded) == (len(BAD_ENTRIES), 0)
    assert len(second.warnings) == len(BAD_ENTRIES)
    for path, (_, reason), warning in zip(paths, BAD_ENTRIES, second.warnings, strict=True):
        assert f"the cached program '{path}' {reason}" in warning
        assert "It is compiled again and replaced." in warning
    third = run(folder, *sizes)
    assert (third.compiled, third.loaded, third.warnings) == (0, len(BAD_ENTRIES), [])


# --- folders that are no good -----------------------------------------------------------------------------------------


def one_warning(result: Outcome, *parts: str) -> None:
    assert len(result.warnings) == 1, result.warnings
    for part in parts:
        assert part in result.warnings[0]


def test_a_folder_that_others_may_write_to_is_refused(run: Run, folder: Path) -> None:
    run(folder, 11)
    folder.chmod(0o777)
    result = run(folder, 11, 12)
    assert (result.compiled, result.loaded) == (2, 0)
    assert len(list(folder.iterdir())) == 1
    one_warning(result, f"'{folder}', may be written by others (mode 0777)", "`chmod 700` it", "TORCH_PJRT_CACHE=0")


def test_a_folder_of_another_user_is_refused(run: Run, folder: Path) -> None:
    if os.geteuid() == 0:
        folder.mkdir(0o700)
        os.chown(folder, 12345, -1)
    theirs = folder if os.geteuid() == 0 else Path("/")
    result = run(theirs, 11, 12)
    assert (result.compiled, result.loaded) == (2, 0)
    one_warning(result, f"'{theirs}', belongs to another user (uid {theirs.stat().st_uid})", "TORCH_PJRT_CACHE_DIR")


def test_a_folder_that_cannot_be_made(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(tmp_path / "file" / "programs", 11, 12)
    assert (result.compiled, result.loaded) == (2, 0)
    one_warning(result, f"'{tmp_path}/file/programs', can't be opened: Not a directory", "TORCH_PJRT_CACHE_DIR")
    result = run("/proc/programs", 11, 12)
    one_warning(result, "'/proc/programs', can't be made: No such file or directory", "TORCH_PJRT_CACHE_DIR")


# Gives up CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, so that permissions apply to root as well.
WITHOUT_ROOTS_PRIVILEGES = """\
import ctypes
header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
ctypes.CDLL(None).capget(header, sets)
sets[0] &= ~0b110
assert ctypes.CDLL(None).capset(header, sets) == 0
"""


def test_a_read_only_folder_is_read(run: Run, folder: Path) -> None:
    run(folder, 11)
    folder.chmod(0o500)
    result = run(folder, 11, 12, 13, source=WITHOUT_ROOTS_PRIVILEGES + PROGRAMS)
    assert (result.compiled, result.loaded) == (2, 1)
    one_warning(result, f"compiled programs can't be kept in '{folder}': Permission denied", "make it writable")


# Limits files to 4 KiB: as on a full disk, only the first part of an entry can be written.
NO_ROOM = """\
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
"""


@pytest.mark.host_memory
def test_a_full_folder(run: Run, folder: Path) -> None:
    result = run(folder, 11, 12, source=NO_ROOM + PROGRAMS)
    assert (result.compiled, result.loaded) == (2, 0)
    one_warning(result, f"compiled programs can't be kept in '{folder}': File too large", "Make room there")
    assert list(folder.iterdir()) == []  # no half entry is left


# --- settings ---------------------------------------------------------------------------------------------------------


def test_where_programs_are_kept_by_default(run: Run, tmp_path: Path) -> None:
    def made(**environment: str) -> list[Path]:
        result = run("", 11, **environment)
        assert (result.compiled, result.loaded, result.warnings) == (1, 0, [])
        found = sorted(path.parent for path in tmp_path.rglob("*.pjrt"))
        shutil.rmtree(tmp_path / "a", ignore_errors=True)
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        return found

    home, cache = str(tmp_path / "a"), str(tmp_path / "b")
    assert made(HOME=home, XDG_CACHE_HOME="") == [tmp_path / "a/.cache/torch_pjrt"]
    assert made(HOME=home, XDG_CACHE_HOME=cache) == [tmp_path / "b/torch_pjrt"]
    assert made(HOME=home, XDG_CACHE_HOME=cache, TORCH_PJRT_CACHE="0") == []


def test_what_was_not_used_for_longest_goes_first(run: Run, folder: Path) -> None:
    first = run(folder, 11, 12, 13, 14)
    paths = {n: folder / names[0] for n, names in first.files.items()}
    room = sum(path.stat().st_size for path in paths.values())
    for age, path in enumerate(paths.values()):
        os.utime(path, (1000 + age, 1000 + age))
    stale = folder / f"{'0' * 40}.1.1.tmp"
    stale.write_text("what a process that died left")
    os.utime(stale, (1000, 1000))
    # 11 is used, so 12 is the oldest; there is no room for one more entry.
    second = run(folder, 11, 15, TORCH_PJRT_CACHE_SIZE=str(room + 100))
    assert (second.compiled, second.loaded, second.warnings) == (1, 1, [])
    kept = {path.name for path in folder.iterdir()}
    assert sum(path.stat().st_size for path in folder.iterdir()) <= room
    assert {paths["11"].name, *second.files["15"]} <= kept
    assert paths["12"].name not in kept
    assert stale.name not in kept


def test_a_bound_that_no_program_fits_into(run: Run, folder: Path) -> None:
    result = run(folder, 11, TORCH_PJRT_CACHE_SIZE="1K")
    assert (result.compiled, result.warnings, list(folder.parent.rglob("*.pjrt"))) == (1, [], [])


@pytest.mark.parametrize("size", ["many", "-1", "5 XB"])
def test_a_bound_that_is_no_size(run: Run, folder: Path, size: str) -> None:
    result = run(folder, 11, TORCH_PJRT_CACHE_SIZE=size)
    assert result.compiled == 1
    one_warning(result, f"TORCH_PJRT_CACHE_SIZE='{size}' is no size; 2 GiB is used", "500MB or 2GiB")
    assert len(list(folder.iterdir())) == 1


# --- many processes ---------------------------------------------------------------------------------------------------


def test_processes_that_write_the_same_entries_at_once(run: Run, folder: Path) -> None:
    sizes = tuple(range(30, 40))
    for result in run.at_once(3, folder, *sizes):
        assert result.compiled + result.loaded == len(sizes)
        assert result.warnings == []
    after = run(folder, *sizes)
    assert (after.compiled, after.loaded, after.warnings) == (0, len(sizes), [])
    assert len(list(folder.iterdir())) == len(sizes)
