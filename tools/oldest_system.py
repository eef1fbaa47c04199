"""Rejects a wheel that an old system can't load: oldest_system.py manylinux_2_28 WHEEL

It names each symbol that is too new. A platform's name determines the versions of the symbols of its C and C++
libraries; auditwheel has the lists.
"""

from __future__ import annotations

import io
import json
import platform
import sys
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from elftools.elf.elffile import ELFFile


def allowed(name: str) -> dict[str, set[str]]:
    """Returns library -> its versions on this platform: "GLIBC" -> {"2.2.5", …}."""
    policies = json.loads((files("auditwheel") / "policy/manylinux-policy.json").read_text())
    (found,) = (policy for policy in policies if policy["name"] == name)
    return {library: set(versions) for library, versions in found["symbol_versions"][platform.machine()].items()}


def needed(library: bytes) -> Iterator[tuple[str, str]]:
    """Yields each symbol that a shared library imports, and its version: ("stat", "GLIBC_2.33")."""
    elf = ELFFile(io.BytesIO(library))
    numbers, versions = (elf.get_section_by_name(name) for name in (".gnu.version", ".gnu.version_r"))
    if numbers is None or versions is None:
        return
    for i, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
        number = numbers.get_symbol(i)["ndx"]
        if symbol["st_shndx"] == "SHN_UNDEF" and isinstance(number, int):
            yield symbol.name, versions.get_version(number)[1].name


def too_new(wheel: Path, name: str) -> list[str]:
    there = allowed(name)
    found = []
    with zipfile.ZipFile(wheel) as archive:
        for file in archive.namelist():
            if not file.endswith(".so") and (".data/scripts/" not in file or file.endswith("/")):
                continue
            for symbol, version in sorted(needed(archive.read(file))):
                library, _, number = version.rpartition("_")
                if library in there and number not in there[library]:
                    found.append(f"{file} needs {symbol}, version {version}, which {name} has not")
    return found


if __name__ == "__main__":
    lines = too_new(Path(sys.argv[2]), sys.argv[1])
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(1 if lines else 0)
