"""Joins wheels that were built for different torch versions: join_wheels.py FOLDER WHEEL WHEEL...

The wheels have one version, one Python and one platform, and differ in the folder of their core (torch_2_13/_C.….so).
The joint wheel has all cores, and works with each torch that has one.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import sys
import zipfile
from pathlib import Path

CORE = re.compile(r"torch_pjrt/torch_(\d+)_(\d+)/")
NEEDS = re.compile(r"^Requires-Dist: torch==\d+\.\d+\.\*$", re.MULTILINE)


def read(wheel: Path) -> dict[str, bytes]:
    """Returns name -> content of all files except the list of files."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            i.filename: archive.read(i) for i in archive.infolist() if not i.is_dir() and "RECORD" not in i.filename
        }


def needed(versions: list[tuple[int, int]]) -> str:
    """Returns the torch versions that pip may install: from the oldest to the newest, except those without a core."""
    (major, first), (_, last) = versions[0], versions[-1]
    between = [minor for minor in range(first, last + 1) if (major, minor) not in versions]
    return ",".join([f">={major}.{first}", f"<{major}.{last + 1}", *(f"!={major}.{minor}.*" for minor in between)])


def join(folder: Path, wheels: list[Path]) -> Path:
    """Writes the joint wheel into the folder.

    Raises:
        ValueError: the wheels differ in more than their cores.
    """
    if len({wheel.name for wheel in wheels}) != 1:
        raise ValueError(f"these are wheels of several versions or platforms: {', '.join(w.name for w in wheels)}")
    contents = [read(wheel) for wheel in wheels]
    joint: dict[str, bytes] = {}
    for wheel, content in zip(wheels, contents, strict=True):
        for name, data in content.items():
            if name.endswith(".dist-info/METADATA"):
                data = NEEDS.sub("Requires-Dist: torch", data.decode()).encode()
            if joint.setdefault(name, data) != data:
                raise ValueError(f"{name} in {wheel} is not that of {wheels[0]}")
    versions = sorted({(int(m[1]), int(m[2])) for name in joint if (m := CORE.match(name))})
    if len(versions) != len(wheels):
        raise ValueError(f"{len(wheels)} wheels have the cores of {len(versions)} versions of torch")
    (metadata,) = (name for name in joint if name.endswith(".dist-info/METADATA"))
    text = joint[metadata].decode()
    joint[metadata] = re.sub(
        "^Requires-Dist: torch$", f"Requires-Dist: torch{needed(versions)}", text, flags=re.M
    ).encode()

    record, target = metadata.replace("METADATA", "RECORD"), folder / wheels[0].name
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for name, data in joint.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        writer.writerow([name, f"sha256={digest}", len(data)])
    writer.writerow([record, "", ""])
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in [*joint.items(), (record, rows.getvalue().encode())]:
            archive.writestr(name, data)
    return target


if __name__ == "__main__":
    print(join(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]))
